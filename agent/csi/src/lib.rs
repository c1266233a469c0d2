//! Storage drivers of a node: the messages of CSI v1 and of plugin registration, and a client that limits time and size of every
//! answer.
//!
//! Depends on none of our crates. The agent calls drivers; the suites serve one. Clients of other plugins use its connections.

#![forbid(unsafe_code)]

// Failed calls.
mod error;
// Connections to sockets.
mod socket;
// A plugin that registers itself.
mod registration;
// A driver on this node.
mod driver;

pub use driver::{Capabilities, Driver, Observer};
pub use error::CallError;
pub use registration::Registrar;
pub use socket::{MAX_MESSAGE, answer, channel};

/// CSI v1, generated from `proto/csi.proto`.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("csi.v1");
}

/// Plugin registration v1, generated from `proto/registration.proto`.
#[allow(missing_docs, clippy::all)]
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}
