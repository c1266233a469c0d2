//! Sends log files to the client and follows them with inotify. Files are read and decompressed on threads for blocking work.

use bytes::Bytes;
use coracle_proto::cri;
use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

use super::line::Printer;
use super::options::LogOptions;
use super::reader::{LineReader, LogFile};
use super::segments::{self, Segment};
use coracle_engine::runtime::Runtime;
use coracle_host_dir::HostDir;

/// Delay after a container's exit, for its last lines to be written.
const FLUSH_DELAY: Duration = Duration::from_millis(200);
/// Poll interval for runtimes without events.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Resolves when a container has exited.
pub async fn ended(runtime: Arc<dyn Runtime>, id: String) {
    use cri::ContainerEventType::{ContainerDeletedEvent, ContainerStoppedEvent};
    // Subscribes before reading the status, so that no exit is missed.
    let events = runtime.events().await;
    let runs = async || {
        let status = runtime.container_status(&id, false).await.ok().and_then(|answer| answer.status);
        status.is_some_and(|status| status.state == cri::ContainerState::ContainerRunning as i32)
    };
    if !runs().await {
        return;
    }
    if let Ok(mut events) = events {
        while let Some(event) = events.next().await {
            let over = [ContainerStoppedEvent as i32, ContainerDeletedEvent as i32];
            if event.container_id == id && over.contains(&event.container_event_type) {
                return;
            }
        }
    }
    while runs().await {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A slow disk must not hold up other requests.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Sends a file to its end; nothing is returned when the client wants no more.
async fn drain(
    mut lines: LineReader,
    mut file: LogFile,
    out: &mpsc::Sender<Bytes>,
) -> io::Result<Option<(LineReader, LogFile)>> {
    loop {
        let printed;
        (lines, file, printed) = blocking(move || {
            let printed = lines.read(&mut file)?;
            Ok((lines, file, printed))
        })
        .await?;
        let Some(printed) = printed else { return Ok(Some((lines, file))) };
        if (!printed.is_empty() && out.send(printed.into()).await.is_err()) || lines.is_full() {
            return Ok(None);
        }
    }
}

/// Sends a log, and with `follow` goes on until the container has ended or the client is gone.
pub async fn send(
    log: &Path,
    options: &LogOptions,
    ended: impl Future<Output = ()>,
    out: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut lines = LineReader::new(Printer::new(options));
    // Watched before it is read, so that nothing is missed in between.
    let (dir, name) = HostDir::of_file(log)?;
    let dir = Arc::new(dir);
    let mut changes = if options.follow { Some(watch(&dir)?) } else { None };
    let (held, log, tail) = (dir.clone(), name.clone(), options.tail);
    let (mut segments, mut inode) = blocking(move || find(&held, &log, tail)).await?;
    let last = segments.pop();
    for segment in segments {
        let file = blocking(move || segment.open()).await?;
        let Some(drained) = drain(lines, file, out).await? else { return Ok(()) };
        lines = drained.0;
        lines.end_file();
    }
    let Some(last) = last else { return Ok(()) };
    let mut current = blocking(move || last.open()).await?;
    tokio::pin!(ended);
    let mut over = false;
    loop {
        let Some(drained) = drain(lines, current, out).await? else { return Ok(()) };
        (lines, current) = drained;
        // The file was rotated: the keeper writes only to the new one now.
        if let Some(new) = inode_of(&dir, &name).filter(|new| options.follow && *new != inode) {
            let Some(drained) = drain(lines, current, out).await? else { return Ok(()) };
            lines = drained.0;
            lines.end_file();
            inode = new;
            current = Box::new(dir.open_file(&name)?);
            continue;
        }
        let Some(changes) = changes.as_mut().filter(|_| !over) else { return Ok(()) };
        tokio::select! {
            () = out.closed() => return Ok(()),
            () = &mut ended => {
                over = true;
                tokio::time::sleep(FLUSH_DELAY).await;
            }
            change = changes.next() => if !matches!(change, Some(Ok(_))) { return Ok(()) },
        }
    }
}

/// The files from where to begin, and the inode of the last one: another one may take its name at any time.
fn find(dir: &Arc<HostDir>, name: &OsStr, tail: Option<u64>) -> io::Result<(Vec<Segment>, u64)> {
    loop {
        let inode = inode_of(dir, name);
        let mut all = segments::rotated(dir, name);
        all.push(Segment::whole(dir, name));
        let found = segments::tail(all, tail)?;
        match (inode, inode_of(dir, name)) {
            (Some(before), Some(after)) if before == after => return Ok((found, before)),
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
            _ => {}
        }
    }
}

fn inode_of(dir: &HostDir, name: &OsStr) -> Option<u64> {
    dir.stat_entry(name).ok().map(|stat| stat.st_ino)
}

fn watch(dir: &HostDir) -> io::Result<EventStream<[u8; 1024]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
    inotify.watches().add(dir.proc_path(), mask)?;
    inotify.into_event_stream([0; 1024])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use tokio::sync::oneshot;

    fn line(text: &str) -> String {
        format!("2026-01-01T00:00:01.000000001Z stdout F {text}\n")
    }

    async fn expect(receiver: &mut mpsc::Receiver<Bytes>, wanted: &str) {
        let mut text = String::new();
        while text.len() < wanted.len() {
            let bytes = tokio::time::timeout(Duration::from_secs(10), receiver.recv()).await;
            text.push_str(std::str::from_utf8(&bytes.unwrap().unwrap()).unwrap());
        }
        assert_eq!(text, wanted);
    }

    #[tokio::test]
    async fn a_follow_survives_rotation_and_ends_with_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(&log, line("one")).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let (sender, mut receiver) = mpsc::channel(4);
        let path = log.clone();
        let task = tokio::spawn(async move {
            let options = LogOptions { follow: true, ..LogOptions::default() };
            send(&path, &options, async { drop(ended.await) }, &sender).await
        });
        expect(&mut receiver, "one\n").await;
        let mut old = File::options().append(true).open(&log).unwrap();
        // Half a line is no line.
        let two = line("two");
        old.write_all(&two.as_bytes()[..20]).unwrap();
        old.write_all(&two.as_bytes()[20..]).unwrap();
        expect(&mut receiver, "two\n").await;
        std::fs::rename(&log, dir.path().join("0.log.20260101-000000")).unwrap();
        old.write_all(line("three").as_bytes()).unwrap();
        std::fs::write(&log, line("four")).unwrap();
        expect(&mut receiver, "three\nfour\n").await;
        end.send(()).unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&log)
            .unwrap()
            .write_all(line("last").as_bytes())
            .unwrap();
        expect(&mut receiver, "last\n").await;
        task.await.unwrap().unwrap();
        assert!(receiver.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_follow_ends_with_its_client() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(&log, line("one")).unwrap();
        let (sender, receiver) = mpsc::channel(4);
        let task = tokio::spawn(async move {
            let options = LogOptions { follow: true, ..LogOptions::default() };
            send(&log, &options, std::future::pending(), &sender).await
        });
        drop(receiver);
        tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_link_in_the_place_of_a_log_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("host"), line("secret")).unwrap();
        std::fs::create_dir(dir.path().join("logs")).unwrap();
        std::os::unix::fs::symlink("logs", dir.path().join("other")).unwrap();
        for (name, log) in
            [("0.log", "logs/0.log"), ("1.log.20260101-000000", "logs/1.log"), ("2.log", "other/2.log")]
        {
            std::os::unix::fs::symlink("../host", dir.path().join("logs").join(name)).unwrap();
            let (sender, mut receiver) = mpsc::channel(4);
            let options = LogOptions::default();
            let sent = send(&dir.path().join(log), &options, std::future::pending(), &sender).await;
            assert!(sent.is_err(), "{name}");
            drop(sender);
            assert!(receiver.recv().await.is_none(), "{name}");
        }
    }
}
