//! Why a claim cannot be mounted.

use super::FileError;
use super::host_path::HostPathError;

/// Why a claim cannot be mounted; may change with the claim, its volume or the disk.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The API server did not answer about the claim.
    #[error("failed to get PVC {namespace}/{claim}: {source}")]
    GetClaim {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// There is no such claim.
    #[error("persistentvolumeclaim {claim:?} not found")]
    NoClaim {
        /// Name of the claim.
        claim: String,
    },
    /// The claim is being deleted, and nothing keeps it until its pods have ended.
    #[error("PVC {namespace}/{claim} is being deleted")]
    Deleted {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// The claim of an ephemeral volume belongs to something else.
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
        /// Name of the pod.
        pod: String,
    },
    /// The volume is bound to another claim.
    #[error("PersistentVolume {volume} is not bound to PVC {namespace}/{claim} of this uid")]
    OtherClaim {
        /// Name of the volume.
        volume: String,
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// A block device is to be mounted as a directory.
    #[error("volume {volume} has volumeMode Block, but is specified in volumeMounts")]
    Block {
        /// Name of the volume in the pod.
        volume: String,
    },
    /// A directory is to be used as a block device.
    #[error("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices")]
    Filesystem {
        /// Name of the volume in the pod.
        volume: String,
    },
    /// A path that is to be a block device is none.
    #[error("path {path:?} of PersistentVolume {volume} is not a block device")]
    NotDevice {
        /// Name of the volume.
        volume: String,
        /// The path.
        path: String,
    },
    /// The claim has no volume yet.
    #[error("PVC {namespace}/{claim} has non-bound phase (\"Pending\") or empty volumeName")]
    NotBound {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// The API server did not answer about the volume, or does not have it.
    #[error("failed to get PV {volume}: {source}")]
    GetVolume {
        /// Name of the volume.
        volume: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The volume is on other nodes.
    #[error("PersistentVolume {volume} has node affinity that does not match this node")]
    NodeAffinity {
        /// Name of the volume.
        volume: String,
    },
    /// The directory of a volume of the built-in provisioner was not made.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// The volume is a path of the host that cannot be used.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The volume has mount options, and is not mounted.
    #[error("mount options are not supported for this volume type")]
    MountOptions,
    /// The volume is a directory that is not there.
    #[error("path {path:?} does not exist")]
    NoPath {
        /// The directory.
        path: String,
    },
    /// The volume is neither `hostPath` nor `local` nor `nfs` nor `csi`.
    #[error("no volume plugin matched name: {volume}")]
    NoPlugin {
        /// Name of the volume.
        volume: String,
    },
}
