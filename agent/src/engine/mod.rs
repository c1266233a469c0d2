//! The container engine: images, sandboxes, containers and their network.

// The runtime side of CNI.
pub mod cni;
