//! Why a container does not get its devices.

use coracle_cli::causes;
use coracle_devices::CallError;
use std::sync::Arc;

use super::allocations::CheckpointError;

/// Why a container does not get its devices. Texts are the kubelet's where it has one.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// The pod has another number of devices than it asks for.
    #[error(
        "pod {uid:?} container {container:?} changed request for resource {resource:?} from {had} to {wanted}"
    )]
    Changed {
        /// Uid of the pod.
        uid: String,
        /// Name of the container.
        container: String,
        /// Extended resource.
        resource: String,
        /// What it has.
        had: usize,
        /// What it asks for.
        wanted: usize,
    },
    /// No plugin has the resource any more.
    #[error("cannot allocate unregistered device {resource}")]
    Unregistered {
        /// Extended resource.
        resource: String,
    },
    /// Its plugin is gone, or has no healthy devices.
    #[error("no healthy devices present; cannot allocate unhealthy devices {resource}")]
    NoHealthy {
        /// Extended resource.
        resource: String,
    },
    /// Devices that the pod had before a reboot have failed.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
    )]
    Unhealthy {
        /// Extended resource.
        resource: String,
    },
    /// Other pods have them.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    TooFew {
        /// Extended resource.
        resource: String,
        /// Asked for.
        requested: usize,
        /// Free and healthy.
        available: usize,
    },
    /// The plugin failed.
    #[error("device plugin of {resource}: {error}")]
    Call {
        /// Extended resource.
        resource: String,
        /// The cause.
        error: CallError,
    },
    /// The plugin answered without saying what the container needs.
    #[error("device plugin of {resource}: Allocate: the answer has no container response")]
    NoResponse {
        /// Extended resource.
        resource: String,
    },
    /// The allocation cannot be recorded.
    #[error("{}", causes::chain(.0))]
    Checkpoint(CheckpointError),
    /// Which devices pods have is not known.
    #[error("{}", causes::chain(&**.0))]
    Damaged(Arc<CheckpointError>),
}
