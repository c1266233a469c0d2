//! Errors of the bridge plugin.

use std::{io, path::PathBuf};

use crate::{
    protocol::{self, code},
    route::Cidr,
};

/// Why a container cannot join a bridge, or is not attached to it as it was.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// Two settings that exclude each other.
    #[error("cannot set hairpin mode and promiscuous mode at the same time")]
    HairpinAndPromiscuous,
    /// A setting that this plugin does not have.
    #[error("field {field:?} is not supported")]
    Field {
        /// Its name.
        field: &'static str,
    },
    /// A name that the kernel does not take.
    #[error("invalid bridge name {name:?}")]
    Name {
        /// The name as given.
        name: String,
    },
    /// Not a hardware address.
    #[error("invalid MAC address {text:?}")]
    BadMac {
        /// The value as given.
        text: String,
    },
    /// The result is not of this plugin.
    #[error("prevResult has no interface on the host")]
    NoHostInterface,
    /// The result is of another interface.
    #[error("prevResult has no interface {name}")]
    NoInterface {
        /// `CNI_IFNAME`.
        name: String,
    },
    /// The container has an interface of this name.
    #[error("failed to create veth pair: container veth name ({name:?}) already exists")]
    InterfaceExists {
        /// `CNI_IFNAME`.
        name: String,
    },
    /// Another process removed the new link.
    #[error("link {name} vanished while it was set up")]
    LinkVanished {
        /// Name of the link.
        name: String,
    },
    /// Another process removed the new bridge.
    #[error("bridge {name} vanished")]
    BridgeVanished {
        /// Name of the bridge.
        name: String,
    },
    /// Another kind of link has the name of the bridge.
    #[error("{name:?} already exists but is not a bridge")]
    NotABridge {
        /// Name of the link.
        name: String,
    },
    /// The bridge is the gateway of another network.
    #[error("{bridge:?} already has an IP address different from {address}")]
    OtherAddress {
        /// Name of the bridge.
        bridge: String,
        /// The one it should have.
        address: Cidr,
    },
    /// IP forwarding could not be enabled.
    #[error("failed to enable forwarding: {path}")]
    Forwarding {
        /// Path of the sysctl.
        path: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The host's end is attached to something else.
    #[error("{port} is not attached to bridge {bridge}")]
    NotAttached {
        /// Name of the host's end.
        port: String,
        /// Name of the bridge.
        bridge: String,
    },
    /// Nothing masquerades the container's addresses.
    #[error("masquerading rules are missing")]
    NoMasquerade,
    /// The result is of another network namespace.
    #[error("sandbox in prevResult {sandbox} doesn't match configured netns: {}", netns.display())]
    Sandbox {
        /// Of the result.
        sandbox: String,
        /// `CNI_NETNS`.
        netns: PathBuf,
    },
    /// The hardware address is another one.
    #[error("interface {name} Mac {found} doesn't match {expected}")]
    Mac {
        /// Name of the interface.
        name: String,
        /// What it has.
        found: String,
        /// What it was given.
        expected: String,
    },
    /// An address is gone.
    #[error("failed to match addr {address} on interface {name}")]
    Address {
        /// What it was given.
        address: Cidr,
        /// Name of the interface.
        name: String,
    },
    /// A route is gone.
    #[error("expected route to {destination} not found")]
    Route {
        /// Its destination.
        destination: Cidr,
    },
    /// A link is down.
    #[error("interface {name} is down")]
    Down {
        /// Name of the link.
        name: String,
    },
    /// A link is gone.
    #[error("interface {name} does not exist")]
    Absent {
        /// Name of the link.
        name: String,
    },
}

impl BridgeError {
    fn code(&self) -> u32 {
        match self {
            Self::Field { .. } => code::UNSUPPORTED_FIELD,
            Self::HairpinAndPromiscuous
            | Self::Name { .. }
            | Self::BadMac { .. }
            | Self::NoHostInterface
            | Self::NoInterface { .. } => code::INVALID_CONFIG,
            _ => code::INTERNAL,
        }
    }
}

impl From<BridgeError> for protocol::Error {
    fn from(error: BridgeError) -> Self {
        protocol::Error::of(error.code(), &error)
    }
}
