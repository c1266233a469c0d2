//! Terminals: made in the container, sent to the caller.

use std::io::{IsTerminal, stdin};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use coracle_keeper::enter::StepError;
use libcontainer::syscall::syscall::create_syscall;
use nix::unistd::{Uid, fchown};

use super::error::Error;

/// The socket on which the caller waits for a terminal.
pub struct ConsoleSocket(OwnedFd);

impl ConsoleSocket {
    /// Connects; call it while the path is one of the host.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).map_err(Error::file(path))?;
        Ok(Self(stream.into()))
    }

    /// Makes a terminal, sends its master, and takes it as the standard streams of this process, which leads a session.
    pub fn take_terminal(&self, uid: u32) -> Result<(), StepError> {
        // libcontainer closes the descriptor, so it gets one of its own.
        let own = self.0.try_clone()?;
        let raw = own.as_raw_fd();
        std::mem::forget(own);
        libcontainer::tty::setup_console(create_syscall().as_ref(), raw, false)?;
        chown(uid);
        Ok(())
    }
}

/// Makes the user the owner of the terminal, which it may then open again.
pub fn chown(uid: u32) {
    let stdin = stdin();
    if stdin.is_terminal() {
        let _ = fchown(stdin.as_fd(), Some(Uid::from_raw(uid)), None);
    }
}
