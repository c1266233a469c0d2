//! Errors of port mappings.

use crate::protocol::{self, code};

/// Why port mappings cannot be added or checked.
#[derive(Debug, thiserror::Error)]
pub enum PortmapError {
    /// No plugin before this one made an interface.
    #[error("must be called as chained plugin")]
    NotChained,
    /// Settings that only iptables understands.
    #[error("conditionsV4 and conditionsV6 are iptables arguments and not supported")]
    Conditions,
    /// Neither TCP, UDP nor SCTP.
    #[error("invalid port mapping protocol {protocol:?}")]
    Protocol {
        /// As given, in lower case.
        protocol: String,
    },
    /// A mapping without a container port.
    #[error("invalid container port number: 0")]
    ContainerPort,
    /// Not an address.
    #[error("invalid host IP {text:?}")]
    HostIp {
        /// The value as given.
        text: String,
    },
    /// CHECK found mappings gone.
    #[error("port mappings are missing")]
    Missing,
}

impl PortmapError {
    fn code(&self) -> u32 {
        match self {
            Self::Conditions => code::UNSUPPORTED_FIELD,
            Self::NotChained | Self::Protocol { .. } | Self::ContainerPort | Self::HostIp { .. } => {
                code::INVALID_CONFIG
            }
            Self::Missing => code::INTERNAL,
        }
    }
}

impl From<PortmapError> for protocol::Error {
    fn from(error: PortmapError) -> Self {
        protocol::Error::of(error.code(), &error)
    }
}
