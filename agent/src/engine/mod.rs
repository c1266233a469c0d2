//! The container engine: images, sandboxes, containers and their network.

// Images: fetched, verified, unpacked, collected.
pub mod image;
// The runtime side of CNI.
pub mod cni;
