//! Errors of starting a process in a container.

use std::io;

use nix::errno::Errno;

/// Why no process was started. The wording follows OCI runtimes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, directory or pipe that the keeper needs.
    #[error("{what}")]
    Io {
        /// Its role.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The request file is not valid JSON.
    #[error("request")]
    Request(#[source] serde_json::Error),
    /// A system call failed before exec.
    #[error("{what}")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        #[source]
        errno: Errno,
    },
    /// The container's first process has ended, or its cgroup is gone.
    #[error("container is not running")]
    NotRunning,
    /// Only the OCI runtime can join a user namespace.
    #[error("the container has a user namespace")]
    UserNamespace,
    /// The child failed; its error came through a pipe.
    #[error("unable to start container process: {message}")]
    Child {
        /// Its error, with causes.
        message: String,
    },
}

impl Error {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    pub(super) fn kernel(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Kernel { what, errno }
    }
}
