//! Storage drivers (CSI): those that are registered on this node, and the volumes that they mount for pods.
//!
//! What is about to be mounted is recorded on disk before the driver is called ([`records`]), so that an agent that was killed in
//! between knows what to undo. A driver is called again only when its last answer is not known.
#![allow(
    clippy::disallowed_methods,
    reason = "no pod can write to these directories, and an administrator may have linked them"
)]

// Names of volumes and the paths that drivers see.
pub mod names;
// Mounts that pods and the node share.
pub mod propagation;
// Drivers by name.
pub mod drivers;
// The CSINode object and topology labels.
pub mod node_object;
// How many volumes of a driver fit on the node.
mod limits;
// Plugins that register themselves.
pub mod registration;
// What drivers were asked to mount.
pub mod records;
// Attachments by the control plane.
pub mod attachments;
// Volumes as a pod or a PersistentVolume describes them.
pub mod volume;
// Requests to drivers.
pub mod request;
// Block volumes.
mod device;
// Why a volume is not mounted.
pub mod error;
// Sizes of volumes.
mod sizes;
// Mounting.
pub mod mount;
// Unmounting.
mod unmount;
// What claims say about expansions.
mod claim_status;
// Volumes that have grown.
pub mod expand;
// How full volumes are.
mod stats;

pub use error::CsiError;
pub use mount::{CsiVolumes, Mounted, Pass};
pub use stats::{Health, VolumeStats};
pub use volume::CsiVolume;
