//! Terminals of commands.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::internal;
use crate::runtime::{Input, Output, Result, TerminalSize};
use coracle_keeper::launch::set_nonblocking;
use coracle_keeper::streams;

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
pub(super) fn resize_terminal(terminal: BorrowedFd<'_>, size: TerminalSize) -> nix::Result<()> {
    streams::resize(terminal, size)
}
