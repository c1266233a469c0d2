//! Exec: runs a command in a container, with its streams connected to the engine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::Execs;
use super::pipes::{Collector, null, output};
use super::start::Command;
use super::terminal::{resize_terminal, terminal_streams};
use crate::error::internal;
use crate::runtime::{Output, Result, RuntimeError, Session, TerminalSize};
use coracle_keeper::pidfd;

impl Execs {
    /// Runs a command to its end; a zero `timeout` is none.
    pub(crate) async fn exec_sync(
        self: &Arc<Self>,
        id: &str,
        args: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        let container = self.running(id)?;
        let command = Command { container: &container, args, tty: false };
        let ((stdout, out), (stderr, err)) = (output()?, output()?);
        let (running, _) = self.start(command, [null()?, out, err]).await?;
        let pidfd = running.pidfd.clone();
        let (stdout, stderr) = (Collector::start(stdout), Collector::start(stderr));
        let limit = if timeout.is_zero() { Duration::MAX } else { timeout };
        // Continues after a timeout, so that the keeper forgets the task when the command ends.
        let execs = self.clone();
        let mut ending = tokio::spawn(async move { execs.end(running).await });
        let code = match tokio::time::timeout(limit, &mut ending).await {
            Ok(code) => code.map_err(internal("exec"))??,
            Err(_) => {
                if let Some(pidfd) = pidfd {
                    let _ = pidfd::kill(&pidfd, libc::SIGKILL);
                }
                return Err(RuntimeError::DeadlineExceeded(format!(
                    "failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded"
                )));
            }
        };
        let (stdout, stderr) = tokio::join!(stdout.finish(), stderr.finish());
        Ok(cri::ExecSyncResponse { stdout, stderr, exit_code: code })
    }

    /// Starts a command with its streams.
    pub(crate) async fn exec(self: &Arc<Self>, request: cri::ExecRequest) -> Result<Session> {
        let container = self.running(&request.container_id)?;
        let command = Command { container: &container, args: request.cmd, tty: request.tty };
        let (resize, mut sizes) = mpsc::channel::<TerminalSize>(4);
        let (done, exit) = oneshot::channel();
        let mut session = Session { stdin: None, stdout: None, stderr: None, resize, exit };
        let running = if request.tty {
            let (running, terminal) = self.start(command, [null()?, null()?, null()?]).await?;
            let terminal = Arc::new(terminal.ok_or_else(|| RuntimeError::Internal("no terminal".into()))?);
            let (reader, writer) = terminal_streams(&terminal)?;
            session.stdout = Some(reader);
            session.stdin = request.stdin.then_some(writer);
            tokio::spawn(async move {
                while let Some(size) = sizes.recv().await {
                    let _ = resize_terminal(terminal.as_fd(), size);
                }
            });
            running
        } else {
            let stdin = if request.stdin {
                let (writer, reader) = pipe::pipe().map_err(internal("pipe"))?;
                session.stdin = Some(Box::new(writer));
                reader.into_blocking_fd().map_err(internal("pipe"))?
            } else {
                null()?
            };
            let sink = |wanted: bool| -> Result<(Option<Output>, OwnedFd)> {
                if !wanted {
                    return Ok((None, null()?));
                }
                let (reader, writer) = output()?;
                Ok((Some(Box::new(reader)), writer))
            };
            let ((stdout, out), (stderr, err)) = (sink(request.stdout)?, sink(request.stderr)?);
            (session.stdout, session.stderr) = (stdout, stderr);
            self.start(command, [stdin, out, err]).await?.0
        };
        let execs = self.clone();
        tokio::spawn(async move {
            let _ = done.send(execs.end(running).await);
        });
        Ok(session)
    }
}
