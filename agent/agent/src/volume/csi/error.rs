//! Why a volume of a driver is not mounted or unmounted.

use coracle_csi::CallError;
use std::path::PathBuf;

use super::attachments::NotAttached;
use super::records::RecordError;
use crate::volume::token::TokenError;

/// Why a volume of a driver is not mounted or unmounted; tried again, unless no more volumes fit on the node.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// The driver does not run on this node, or not yet.
    #[error("driver name {driver} not found in the list of registered CSI drivers")]
    NoDriver {
        /// Name of the driver.
        driver: String,
    },
    /// The driver failed.
    #[error("driver {driver}: {source}")]
    Call {
        /// Name of the driver.
        driver: String,
        /// The cause.
        source: CallError,
    },
    /// An object is not known.
    #[error("reading {object}: {source}")]
    Api {
        /// Kind and name.
        object: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A secret for the driver does not exist.
    #[error("secret {namespace}/{name} for driver {driver} not found")]
    NoSecret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Name of the driver.
        driver: String,
    },
    /// A value that CSI cannot carry.
    #[error("secret {namespace}/{name}: key {key:?} is not UTF-8, which CSI requires")]
    SecretText {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// The driver is not made for this kind of volume.
    #[error("volume mode {mode:?} not supported by driver {driver} (only supports {supported:?})")]
    Lifecycle {
        /// Name of the driver.
        driver: String,
        /// What the pod wants.
        mode: &'static str,
        /// What the CSIDriver says.
        supported: Vec<String>,
    },
    /// The volume is for one pod only, and another pod of this node has it.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    SinglePod,
    /// The control plane has not attached it.
    #[error(transparent)]
    NotAttached(#[from] NotAttached),
    /// The attachment is missing or has failed.
    #[error("VolumeAttachment {name} of volume {volume}: {problem}")]
    Attachment {
        /// Its name.
        name: String,
        /// Name of the volume.
        volume: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No more volumes of the driver fit on the node.
    #[error(
        "Node has reached its volume attachment limit, rejecting pod. unattached volumes=[{volume}]: \
         VolumeAttachment {name}: {problem}"
    )]
    Exhausted {
        /// Name of the VolumeAttachment.
        name: String,
        /// Name of the volume.
        volume: String,
        /// What the driver said.
        problem: String,
    },
    /// No token for the driver.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nothing was recorded, so nothing was mounted.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A directory was neither made nor removed.
    #[error("{action} {}: {source}", .path.display())]
    Directory {
        /// The operation.
        action: &'static str,
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The driver has published something else than a block device.
    #[error("{} is not a block device", .path.display())]
    NotDevice {
        /// What it has published.
        path: PathBuf,
    },
    /// The volume has grown, and the driver cannot expand its file system.
    #[error("NodeExpandVolume is not supported by the CSI driver {driver}")]
    NoExpansion {
        /// Name of the driver.
        driver: String,
    },
    /// The claim was not told.
    #[error("updating the status of PVC {claim}: {source}")]
    ClaimStatus {
        /// Namespace and name.
        claim: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The task that mounts has panicked.
    #[error("mounting was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}
