//! Errors of the runtime.

use std::io;
use std::path::PathBuf;

use libcontainer::container::ContainerStatus;
use nix::errno::Errno;

/// Why a command failed. What users see in the status of a pod is worded as runc words it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file that is not the JSON that it should be.
    #[error("{}", path.display())]
    Json {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
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
    /// A mount.
    #[error("mount {:?}", path.display())]
    Mount {
        /// What is mounted.
        path: PathBuf,
        /// The cause.
        #[source]
        source: libcontainer::syscall::SyscallError,
    },
    /// The configuration lacks a section.
    #[error("config.json has no {0}")]
    Missing(&'static str),
    /// A value of the configuration or of the command line.
    #[error("invalid {what}: {value:?}")]
    Invalid {
        /// Its field or option.
        what: &'static str,
        /// As given.
        value: String,
    },
    /// A command or setting that this runtime does not have.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// Nothing is known of this container.
    #[error("container does not exist: {0}")]
    NoContainer(String),
    /// The container's state does not allow the command.
    #[error("cannot {verb} a container that is {}", status.to_string().to_lowercase())]
    Status {
        /// The command.
        verb: &'static str,
        /// The state.
        status: ContainerStatus,
    },
    /// A command in a container that is paused.
    #[error("cannot exec in a paused container (use --ignore-paused to override)")]
    Paused,
    /// More rules than a program has room for.
    #[error("{0} device rules are too many")]
    DeviceRules(usize),
    /// libcontainer.
    #[error("unable to start container process: {0}")]
    Create(String),
    /// libcontainer.
    #[error(transparent)]
    Container(#[from] libcontainer::error::LibcontainerError),
    /// A cgroup.
    #[error("cgroup")]
    Cgroup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A command could not be started in the container.
    #[error("exec failed")]
    Enter(#[from] coracle_keeper::enter::Error),
}

impl Error {
    /// For a file.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// For the content of a file.
    pub fn json(path: impl Into<PathBuf>) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.into();
        move |source| Self::Json { path, source }
    }

    /// For a mount.
    pub fn mount(path: impl Into<PathBuf>) -> impl FnOnce(libcontainer::syscall::SyscallError) -> Self {
        let path = path.into();
        move |source| Self::Mount { path, source }
    }

    /// For a system call.
    pub fn kernel(step: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Kernel { step, errno }
    }
}
