//! Terminals: made in the container, sent to the caller.
//!
//! libcontainer opens `/dev/ptmx`, which in a `/dev` of the host is not the device of the container's terminals.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IsTerminal, stdin};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use libcontainer::syscall::SyscallError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::statfs::{DEVPTS_SUPER_MAGIC, fstatfs};
use nix::unistd::{Uid, dup2_stderr, dup2_stdin, dup2_stdout, fchown};

use super::error::Error;
use super::rootfs::tree;

const PTMX: &str = "/dev/pts/ptmx";
const CONSOLE: &str = "/dev/console";
/// O_LARGEFILE as the kernel has it, which sets it on every other file of a process with 64 bits.
const LARGE_FILE: libc::c_int = if cfg!(target_arch = "x86_64") { 0o100_000 } else { 0o400_000 };

/// Why a process has no terminal.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// Something else is mounted where terminals are.
    #[error("/dev/pts is not a file system of terminals")]
    NotDevpts,
    /// A file.
    #[error("{path}")]
    File {
        /// In the container.
        path: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A system call.
    #[error("{step}")]
    Kernel {
        /// The operation that failed.
        step: &'static str,
        /// The cause.
        #[source]
        errno: Errno,
    },
    /// The mount at `/dev/console`.
    #[error("mount at /dev/console")]
    Console(#[from] SyscallError),
}

fn kernel<T>(step: &'static str, result: Result<T, Errno>) -> Result<T, TerminalError> {
    result.map_err(|errno| TerminalError::Kernel { step, errno })
}

/// What becomes of `/dev/console`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Console {
    /// It is the terminal, as for the first process of a container.
    Mounted,
    /// It stays.
    Kept,
}

/// The socket on which the caller waits for a terminal.
pub struct ConsoleSocket(OwnedFd);

impl ConsoleSocket {
    /// Connects; call it while the path is one of the host.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).map_err(Error::file(path))?;
        Ok(Self(stream.into()))
    }

    /// Makes a terminal, sends its master, and takes it as the standard streams of this process, which leads a session.
    pub fn take_terminal(&self, uid: u32, console: Console) -> Result<(), TerminalError> {
        let (master, own) = pair()?;
        if console == Console::Mounted {
            mount_console(&own)?;
        }
        let (name, fds) = ([IoSlice::new(PTMX.as_bytes())], [master.as_raw_fd()]);
        let rights = [ControlMessage::ScmRights(&fds)];
        kernel("terminal", sendmsg::<()>(self.0.as_raw_fd(), &name, &rights, MsgFlags::empty(), None))?;
        // SAFETY: a request without an argument, on a terminal that outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe { libc::ioctl(own.as_raw_fd(), libc::TIOCSCTTY, 0) };
        kernel("controlling terminal", Errno::result(result))?;
        kernel("standard input", dup2_stdin(&own))?;
        kernel("standard output", dup2_stdout(&own))?;
        kernel("standard error", dup2_stderr(&own))?;
        chown(uid);
        Ok(())
    }
}

/// A new terminal of the container: its master, and the process's end.
fn pair() -> Result<(File, File), TerminalError> {
    let flags = libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let master = OpenOptions::new().read(true).write(true).custom_flags(flags).open(PTMX);
    let master = master.map_err(|source| TerminalError::File { path: PTMX, source })?;
    if kernel("terminals", fstatfs(&master))?.filesystem_type() != DEVPTS_SUPER_MAGIC {
        return Err(TerminalError::NotDevpts);
    }
    let unlocked: libc::c_int = 0;
    // SAFETY: the kernel reads one number, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    kernel("unlocking the terminal", Errno::result(result))?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | LARGE_FILE;
    // SAFETY: the argument is a number; a result that is not negative is a new descriptor.
    #[allow(unsafe_code)]
    let own = unsafe {
        let result = libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags);
        File::from_raw_fd(kernel("opening the terminal", Errno::result(result))?)
    };
    // Not by a flag of the terminal, which the program would see.
    kernel("terminal", fcntl(&own, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)))?;
    Ok((master, own))
}

fn mount_console(own: &File) -> Result<(), TerminalError> {
    let failed = |source| TerminalError::File { path: CONSOLE, source };
    match OpenOptions::new().write(true).create_new(true).mode(0o666).open(CONSOLE) {
        // As in a `/dev` of the host.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => drop(other.map_err(failed)?),
    }
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let place = OpenOptions::new().read(true).custom_flags(flags).open(CONSOLE).map_err(failed)?;
    tree::attach(&tree::clone(own, false)?, &place)?;
    Ok(())
}

/// Makes the user the owner of the terminal, which it may then open again.
fn chown(uid: u32) {
    let stdin = stdin();
    if stdin.is_terminal() {
        let _ = fchown(stdin.as_fd(), Some(Uid::from_raw(uid)), None);
    }
}
