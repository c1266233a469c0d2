//! What can fail while the file system of a container is completed.

use std::io;
use std::path::{Path, PathBuf};

use libcontainer::syscall::SyscallError;
use nix::errno::Errno;

/// Why the file system could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    /// A file or directory.
    #[error("{step} {:?}", path.display())]
    File {
        /// The operation that failed.
        step: &'static str,
        /// In the container.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A mount.
    #[error("{step} {:?}", path.display())]
    Mount {
        /// The operation that failed.
        step: &'static str,
        /// In the container.
        path: PathBuf,
        /// The cause.
        #[source]
        source: SyscallError,
    },
    /// Something else is at `/dev/null`, and would be shown instead of what is hidden.
    #[error("/dev/null is not the null device")]
    NullDevice,
    /// Paths would be hidden in another file system than that of the kernel.
    #[error("/proc is not a proc file system")]
    NotProc,
}

pub(super) fn file(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::File { step, path, source }
}

pub(super) fn kernel(step: &'static str, path: &Path) -> impl FnOnce(Errno) -> RootfsError {
    let wrap = file(step, path);
    move |errno| wrap(errno.into())
}

pub(super) fn failed(step: &'static str, path: &Path) -> impl FnOnce(SyscallError) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::Mount { step, path, source }
}
