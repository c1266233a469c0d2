//! Pipes of commands.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::error::internal;
use crate::runtime::Result;

/// Longer output is truncated, as the kubelet does.
const MAX_OUTPUT: usize = 16 << 20;
/// How long to wait for output that children of an ended command keep open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn null() -> Result<OwnedFd> {
    let file = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    Ok(file.map_err(internal("/dev/null"))?.into())
}

/// Our end, and the end for the process.
pub(super) fn output() -> Result<(pipe::Receiver, OwnedFd)> {
    let (writer, reader) = pipe::pipe().map_err(internal("pipe"))?;
    Ok((reader, writer.into_blocking_fd().map_err(internal("pipe"))?))
}

/// Reads a stream in the background, so that partial output is available after a timeout.
pub(super) struct Collector {
    bytes: Arc<parking_lot::Mutex<Vec<u8>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Collector {
    pub(super) fn start(stream: pipe::Receiver) -> Self {
        let bytes = Arc::<parking_lot::Mutex<Vec<u8>>>::default();
        let shared = bytes.clone();
        let task = tokio::spawn(async move {
            let mut stream = stream;
            let mut chunk = vec![0; 32 << 10];
            while let Ok(n @ 1..) = stream.read(&mut chunk).await {
                let mut bytes = shared.lock();
                let room = MAX_OUTPUT.saturating_sub(bytes.len());
                bytes.extend_from_slice(&chunk[..n.min(room)]);
            }
        });
        Self { bytes, task }
    }

    pub(super) async fn finish(mut self) -> Vec<u8> {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut self.task).await;
        std::mem::take(&mut *self.bytes.lock())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
