//! Errors of address allocation.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::range::{RangeError, RangeSet};
use crate::protocol::{self, code};

/// Why host-local cannot allocate or find an address.
#[derive(Debug, thiserror::Error)]
pub enum HostLocalError {
    /// Without an `ipam` section.
    #[error("IPAM config missing 'ipam' key")]
    NoIpam,
    /// An `ipam` section without ranges.
    #[error("no IP ranges specified")]
    NoRanges,
    /// An invalid range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Two sets could give out the same address.
    #[error("range set {first} overlaps with {second}")]
    SetsOverlap {
        /// Index of one.
        first: usize,
        /// Index of the other.
        second: usize,
    },
    /// A requested address cannot be parsed.
    #[error("invalid requested IP address {text:?}")]
    BadRequest {
        /// The value as given.
        text: String,
    },
    /// The runtime asks for an address outside of the ranges.
    #[error("requested IP address {ip} is not in range set {set}")]
    OutOfRange {
        /// The requested address.
        ip: IpAddr,
        /// Where it was to be taken from.
        set: RangeSet,
    },
    /// The runtime asks for the address of the gateway.
    #[error("requested ip {ip} is subnet's gateway")]
    Gateway {
        /// The requested address.
        ip: IpAddr,
    },
    /// A requested address is allocated to another container.
    #[error("requested IP address {ip} is not available in range set {set}")]
    Taken {
        /// The requested address.
        ip: IpAddr,
        /// Where it was to be taken from.
        set: RangeSet,
    },
    /// The runtime asks for addresses that no set has.
    #[error("failed to allocate all requested IPs: {}", ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))]
    NotAllocated {
        /// The requested addresses.
        ips: Vec<IpAddr>,
    },
    /// The container has an address already.
    #[error("{ip} has been allocated to {id}, duplicate allocation is not allowed")]
    Duplicate {
        /// What it has.
        ip: IpAddr,
        /// The container.
        id: String,
    },
    /// Every address is taken.
    #[error("no IP addresses available in range set: {set}")]
    Exhausted {
        /// Without free addresses.
        set: RangeSet,
    },
    /// The container has no address.
    #[error("host-local: Failed to find address added by container {id}")]
    NoAddress {
        /// The container.
        id: String,
    },
    /// A file could not be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Outcome of an operation on addresses.
pub type Result<T, E = HostLocalError> = std::result::Result<T, E>;

impl HostLocalError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    fn code(&self) -> u32 {
        match self {
            Self::NoIpam
            | Self::NoRanges
            | Self::Range(_)
            | Self::SetsOverlap { .. }
            | Self::BadRequest { .. } => code::INVALID_CONFIG,
            Self::OutOfRange { .. }
            | Self::Gateway { .. }
            | Self::Taken { .. }
            | Self::NotAllocated { .. }
            | Self::Duplicate { .. }
            | Self::Exhausted { .. } => code::INTERNAL,
            Self::NoAddress { .. } => code::UNKNOWN_CONTAINER,
            Self::Io { .. } => code::IO,
        }
    }
}

impl From<HostLocalError> for protocol::Error {
    fn from(error: HostLocalError) -> Self {
        protocol::Error::of(error.code(), &error)
    }
}
