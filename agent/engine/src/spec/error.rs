//! Why a container configuration is rejected.

/// The AppArmor profile of containers that ask for the runtime's default, or for none.
pub const DEFAULT_PROFILE: &str = "coracle-default";

/// Why a container configuration is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither the pod nor the image says what to run.
    #[error("no command specified")]
    NoCommand,
    /// Not a capability.
    #[error("unknown capability {0:?}")]
    Capability(String),
    /// A path that must be absolute is not.
    #[error("{what} {path:?} is not an absolute path")]
    Relative {
        /// Which path.
        what: &'static str,
        /// The path as given.
        path: String,
    },
    /// Recursive read-only mounts are not possible.
    #[error("mount {path:?} cannot be recursively read-only: {why}")]
    RecursiveReadOnly {
        /// Where it is mounted.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// A profile the host does not have.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Why a container cannot be confined as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The kernel filters no system calls.
    #[error("seccomp is not supported")]
    NoSeccomp,
    /// The kernel has AppArmor off.
    #[error("AppArmor is not enabled on the host")]
    NoAppArmor,
    /// A profile of the host without its name.
    #[error("the AppArmor profile has no name")]
    Unnamed,
    /// The runtime's default profile could not be loaded.
    #[error("the AppArmor profile {DEFAULT_PROFILE:?} is not loaded: {reason}")]
    NotLoaded {
        /// Why not, as found when the engine started.
        reason: String,
    },
    /// The kernel has SELinux off.
    #[error("seLinuxOptions are set, and SELinux is not enabled on the host")]
    NoSelinux,
    /// Options and policy together are not a whole label.
    #[error("seLinuxOptions make no {what} label: the host's policy has {context:?} for containers")]
    Label {
        /// `process` or `file`.
        what: &'static str,
        /// Of the policy.
        context: String,
    },
}
