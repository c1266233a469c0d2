//! Attach to a running container.

use coracle_cli::causes;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use coracle_proto::cri;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::Execs;
use crate::error::internal;
use crate::keeper::{self, Keeper};
use crate::objects::Container;
use crate::record::ContainerPhase;
use crate::runtime::{Result, RuntimeError, Session, TerminalSize};
use coracle_keeper::wire::Call;

/// How many keepers are asked, each the successor of one that died.
const ATTEMPTS: usize = 3;

impl Execs {
    /// Joins the streams of a running container.
    pub(crate) async fn attach(&self, request: cri::AttachRequest) -> Result<Session> {
        let container = self.objects.container(&request.container_id)?;
        if container.phase() != ContainerPhase::Running {
            return Err(RuntimeError::FailedPrecondition("container is not running".into()));
        }
        let tty = container.record.lock().config.tty;
        let failed = || internal("pipe");
        let (resize, sizes) = mpsc::channel(4);
        let (done, exit) = oneshot::channel();
        let mut session = Session { stdin: None, stdout: None, stderr: None, resize, exit };
        let mut fds: Vec<OwnedFd> = Vec::new();
        if request.stdin {
            let (writer, reader) = pipe::pipe().map_err(failed())?;
            session.stdin = Some(Box::new(writer));
            fds.push(reader.into_nonblocking_fd().map_err(failed())?);
        }
        let stderr = request.stderr && !tty;
        for (wanted, slot) in [(request.stdout, &mut session.stdout), (stderr, &mut session.stderr)] {
            if wanted {
                let (writer, reader) = pipe::pipe().map_err(failed())?;
                *slot = Some(Box::new(reader));
                fds.push(writer.into_nonblocking_fd().map_err(failed())?);
            }
        }
        let (id, stdin, stdout) = (&container.id, request.stdin, request.stdout);
        self.join(|| Call::Attach { id: id.clone(), stdin, stdout, stderr }, &fds).await?;
        tokio::spawn(follow(self.keeper.clone(), container, sizes, done));
        Ok(session)
    }

    /// Gives the descriptors to the keeper, or to its successor: an attachment that was lost with a keeper had no effect.
    async fn join(&self, call: impl Fn() -> Call, fds: &[OwnedFd]) -> Result<()> {
        let fds: Vec<&OwnedFd> = fds.iter().collect();
        let mut attempt = 1;
        loop {
            self.keeper.settled().await?;
            match self.keeper.call_ok(call(), &fds).await {
                Err(keeper::Error::Gone) if attempt < ATTEMPTS => attempt += 1,
                other => return Ok(other?),
            }
        }
    }
}

/// Forwards terminal sizes until the container or the session ends.
async fn follow(
    keeper: Keeper,
    container: Arc<Container>,
    mut sizes: mpsc::Receiver<TerminalSize>,
    mut done: oneshot::Sender<Result<i32>>,
) {
    let mut exited = container.exited.subscribe();
    let mut open = true;
    loop {
        tokio::select! {
            () = async { drop(exited.wait_for(|exited| *exited).await) } => break,
            () = done.closed() => return,
            size = sizes.recv(), if open => match size {
                Some(size) => {
                    let call = Call::Resize { id: container.id.clone(), size };
                    if let Err(error) = keeper.call_ok(call, &[]).await {
                        tracing::debug!(container = container.id, error = %causes::chain(&error), "resize");
                    }
                }
                None => open = false,
            },
        }
    }
    let _ = done.send(Ok(0));
}
