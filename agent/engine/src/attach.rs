//! Attach to a running container, and port-forward connections into a sandbox.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use coracle_proto::cri;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::error::internal;
use super::record::{ContainerPhase, SandboxPhase};
use super::sandbox::{is_host, namespace_options};
use super::{Container, Engine};
use crate::runtime::{Duplex, Input, Output, Result, RuntimeError, Session, TerminalSize};
use coracle_keeper::launch::set_nonblocking;
use coracle_keeper::streams;
use coracle_keeper::wire::Call;

/// A terminal's master as a stream; EIO is its end of file.
struct Terminal(AsyncFd<OwnedFd>);

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled();
            match guard.try_io(|fd| nix::unistd::read(fd.get_ref(), space).map_err(io::Error::from)) {
                Ok(Ok(n)) => {
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(e)) if e.raw_os_error() == Some(Errno::EIO as i32) => return Poll::Ready(Ok(())),
                Ok(Err(e)) => return Poll::Ready(Err(e)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            match guard.try_io(|fd| nix::unistd::write(fd.get_ref(), buf).map_err(io::Error::from)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Both directions of a terminal.
pub(super) fn terminal_streams(terminal: &OwnedFd) -> Result<(Output, Input)> {
    let half = || -> Result<Terminal> {
        let fd = terminal.try_clone().map_err(internal("terminal"))?;
        set_nonblocking(&fd).map_err(internal("terminal"))?;
        // SAFETY: an `OwnedFd` is the same descriptor for as long as it lives.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register(fd) }.map_err(internal("terminal"))?;
        Ok(Terminal(fd))
    };
    Ok((Box::new(half()?), Box::new(half()?)))
}

/// Sets a terminal's size.
pub(super) fn resize(terminal: BorrowedFd<'_>, size: TerminalSize) -> nix::Result<()> {
    streams::resize(terminal, size)
}

impl Engine {
    pub(super) async fn open_attach(&self, request: cri::AttachRequest) -> Result<Session> {
        let container = self.container(&request.container_id)?;
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
        let call =
            Call::Attach { id: container.id.clone(), stdin: request.stdin, stdout: request.stdout, stderr };
        self.inner.keeper.call_ok(call, &fds.iter().collect::<Vec<_>>()).await?;
        tokio::spawn(self.clone().follow_attach(container, sizes, done));
        Ok(session)
    }

    /// Forwards terminal sizes until the container or the session ends.
    async fn follow_attach(
        self,
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
                        if let Err(error) = self.inner.keeper.call_ok(call, &[]).await {
                            tracing::debug!(container = container.id, %error, "resize");
                        }
                    }
                    None => open = false,
                },
            }
        }
        let _ = done.send(Ok(0));
    }

    pub(super) async fn connect_port(&self, id: &str, port: u16) -> Result<Box<dyn Duplex>> {
        let sandbox = self.sandbox(id)?;
        if sandbox.phase() != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!("sandbox container {id:?} is not running")));
        }
        let host = is_host(namespace_options(&sandbox.record.lock().config).network());
        let netns = (!host).then(|| self.inner.paths.namespace(&sandbox.id, "net"));
        let (sender, receiver) = oneshot::channel();
        // A dedicated thread, because returning from the namespace could fail.
        std::thread::Builder::new()
            .name("port-forward".into())
            .spawn(move || {
                let connect = || -> Result<TcpStream, ConnectError> {
                    if let Some(path) = netns {
                        setns(File::open(path)?.as_fd(), CloneFlags::CLONE_NEWNET)
                            .map_err(io::Error::from)?;
                    }
                    let stream = loopback(port)?;
                    stream.set_nonblocking(true)?;
                    Ok(stream)
                };
                let _ = sender.send(connect());
            })
            .map_err(internal("thread"))?;
        let stream = receiver.await.map_err(internal("port-forward"))?.map_err(|error| {
            RuntimeError::Internal(format!(
                "failed to execute portforward in network namespace of sandbox {id:?}: \
                 failed to connect to localhost:{port} inside namespace {id:?}, {error}"
            ))
        })?;
        Ok(Box::new(tokio::net::TcpStream::from_std(stream).map_err(internal("port-forward"))?))
    }
}

/// Why a port of a sandbox cannot be reached.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Nothing listens on either loopback address.
    #[error("IPv4: {four} IPv6: {six}")]
    Loopback { four: DialError, six: DialError },
}

/// Worded as in other runtimes.
#[derive(Debug, thiserror::Error)]
#[error("dial {network} {to}: connect: {}", in_lower_case(.error))]
struct DialError {
    network: &'static str,
    to: SocketAddr,
    error: io::Error,
}

fn in_lower_case(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}

/// Connects to the port on 127.0.0.1 or ::1.
fn loopback(port: u16) -> Result<TcpStream, ConnectError> {
    let dial =
        |network, to: SocketAddr| TcpStream::connect(to).map_err(|error| DialError { network, to, error });
    let four = match dial("tcp4", SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    dial("tcp6", SocketAddr::from((Ipv6Addr::LOCALHOST, port)))
        .map_err(|six| ConnectError::Loopback { four, six })
}
