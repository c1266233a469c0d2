//! Errors of limits.

use crate::protocol::{self, code};

/// Why traffic cannot be limited, or is not.
#[derive(Debug, thiserror::Error)]
pub enum BandwidthError {
    /// No plugin before this one made an interface.
    #[error("must be called as chained plugin")]
    NotChained,
    /// Limits for some destinations only.
    #[error("shapedSubnets and unshapedSubnets are not supported")]
    Subnets,
    /// A burst of nothing.
    #[error("{direction}Burst is set without {direction}Rate")]
    BurstAlone {
        /// `ingress` or `egress`.
        direction: &'static str,
    },
    /// Nothing would ever be sent.
    #[error("{direction}Rate of {rate} bits per second is less than a byte")]
    Rate {
        /// `ingress` or `egress`.
        direction: &'static str,
        /// The value as given.
        rate: u64,
    },
    /// The container has no such interface.
    #[error("the container has no interface {name}")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// The interface is no veth pair with an end here.
    #[error("interface {name} of the container is not a veth pair with its other end on the host")]
    NoPeer {
        /// Its name.
        name: String,
    },
    /// CHECK found another limit, or none.
    #[error("interface {name} does not have the limit that it was given")]
    Missing {
        /// Its name.
        name: String,
    },
}

impl BandwidthError {
    fn code(&self) -> u32 {
        match self {
            Self::Subnets => code::UNSUPPORTED_FIELD,
            Self::NotChained | Self::BurstAlone { .. } | Self::Rate { .. } => code::INVALID_CONFIG,
            Self::NoInterface { .. } | Self::NoPeer { .. } | Self::Missing { .. } => code::INTERNAL,
        }
    }
}

impl From<BandwidthError> for protocol::Error {
    fn from(error: BandwidthError) -> Self {
        protocol::Error::of(error.code(), &error)
    }
}
