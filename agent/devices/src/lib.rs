//! Devices of a node: the messages of device plugins, DRA drivers and PodResources, and a client that limits time and size of every
//! answer.
//!
//! Depends on `coracle-csi` for connections to plugins and for failed calls. The agent calls plugins; the suites serve one.

#![forbid(unsafe_code)]

// A device plugin on this node.
mod plugin;
// A driver of dynamic resource allocation on this node.
mod driver;

pub use coracle_csi::CallError;
pub use driver::{Driver, DriverError};
pub use plugin::{Devices, Plugin};

/// The device plugin API, generated from `proto/deviceplugin.proto`.
#[allow(missing_docs, clippy::all)]
pub mod v1beta1 {
    tonic::include_proto!("v1beta1");
}

/// Drivers of dynamic resource allocation v1, generated from `proto/dra.proto`.
#[allow(missing_docs, clippy::all)]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// PodResources v1, generated from `proto/podresources.proto`.
#[allow(missing_docs, clippy::all)]
pub mod podresources {
    tonic::include_proto!("v1");
}
