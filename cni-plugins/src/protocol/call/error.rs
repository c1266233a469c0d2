//! Errors in the environment or stdin of a call.

use std::{io, path::PathBuf};

use super::super::{Error, VERSIONS, code};

/// Why a call cannot be served by any plugin.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Stdin cannot be read.
    #[error("error reading from stdin")]
    Stdin(#[source] io::Error),
    /// Variables of the environment that the verb needs.
    #[error("required env variables [{}] missing", names.join(","))]
    Missing {
        /// Names of the variables.
        names: Vec<&'static str>,
    },
    /// Not a verb of the protocol.
    #[error("unknown CNI_COMMAND: {command}")]
    Command {
        /// The command as given.
        command: String,
    },
    /// A part of `CNI_ARGS` without `=`.
    #[error("ARGS: invalid pair {pair:?}")]
    Args {
        /// The pair as given.
        pair: String,
    },
    /// An id that cannot be part of file names.
    #[error("invalid characters in containerID: {id:?}")]
    ContainerId {
        /// The id as given.
        id: String,
    },
    /// A name that the kernel does not take.
    #[error("interface name {name:?} {reason}")]
    InterfaceName {
        /// The name as given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Stdin is not JSON.
    #[error("failed to parse network configuration")]
    Syntax(#[source] serde_json::Error),
    /// A field of the configuration has the wrong type.
    #[error("failed to load netconf")]
    Config(#[source] serde_json::Error),
    /// `prevResult` is not a result.
    #[error("could not parse prevResult")]
    PrevResult(#[source] serde_json::Error),
    /// The verb is about a result, and there is none.
    #[error("Required prevResult missing")]
    NoPrevResult,
    /// The attachments that GC keeps.
    #[error("invalid cni.dev/valid-attachments")]
    Attachments(#[source] serde_json::Error),
    /// Without `name`.
    #[error("missing network name")]
    NoNetworkName,
    /// A `name` that cannot be part of file names.
    #[error("invalid characters found in network name: {name:?}")]
    NetworkName {
        /// The name as given.
        name: String,
    },
    /// A version that is not spoken.
    #[error("incompatible CNI versions")]
    Version {
        /// The version as given.
        version: String,
    },
    /// A version that is older than the verb.
    #[error("config version does not allow {command}")]
    TooOld {
        /// The verb.
        command: String,
        /// Of the configuration.
        version: String,
        /// The first that has the verb.
        since: &'static str,
    },
    /// The container's network namespace is not there.
    #[error("failed to open netns {:?}", path.display())]
    Netns {
        /// `CNI_NETNS`.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A delegated plugin is not installed.
    #[error("failed to find plugin {kind:?} in path {path:?}")]
    NoPlugin {
        /// Its type.
        kind: String,
        /// `CNI_PATH`.
        path: Vec<PathBuf>,
    },
}

impl CallError {
    fn code(&self) -> u32 {
        match self {
            Self::Stdin(_) => code::IO,
            Self::Missing { .. }
            | Self::Command { .. }
            | Self::Args { .. }
            | Self::ContainerId { .. }
            | Self::InterfaceName { .. } => code::INVALID_ENVIRONMENT,
            Self::Syntax(_) | Self::PrevResult(_) => code::DECODING,
            Self::Config(_)
            | Self::NoPrevResult
            | Self::Attachments(_)
            | Self::NoNetworkName
            | Self::NetworkName { .. } => code::INVALID_CONFIG,
            Self::Version { .. } | Self::TooOld { .. } => code::INCOMPATIBLE_VERSION,
            Self::Netns { .. } => code::UNKNOWN_CONTAINER,
            Self::NoPlugin { .. } => code::INTERNAL,
        }
    }

    fn details(&self) -> String {
        match self {
            Self::Version { version } => format!("config is {version:?}, plugin supports {VERSIONS:?}"),
            Self::TooOld { command, version, since } => {
                format!("config is {version:?}, {command} needs {since}")
            }
            _ => String::new(),
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Error { details: error.details(), ..Error::of(error.code(), &error) }
    }
}
