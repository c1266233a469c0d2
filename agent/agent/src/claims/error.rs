//! Why claims cannot be prepared.

use coracle_devices::DriverError;

use super::records::RecordError;

/// Why the claims of a pod are not prepared, or not unprepared; retry.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Its controller has not made it yet.
    #[error("resource claim {claim:?} of the pod is not created yet")]
    NotGenerated {
        /// Name in the pod.
        claim: String,
    },
    /// Made for another pod.
    #[error("ResourceClaim {claim:?} was not created for this pod")]
    NotOwner {
        /// Name of the claim.
        claim: String,
    },
    /// No devices yet.
    #[error("ResourceClaim {claim:?} is not allocated")]
    NotAllocated {
        /// Name of the claim.
        claim: String,
    },
    /// For other pods.
    #[error("ResourceClaim {claim:?} is not reserved for this pod")]
    NotReserved {
        /// Name of the claim.
        claim: String,
    },
    /// The API does not have it.
    #[error("ResourceClaim {claim:?}")]
    Api {
        /// Name of the claim.
        claim: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The API does not answer.
    #[error("ResourceClaim {claim:?}: no answer from the API server")]
    Timeout {
        /// Name of the claim.
        claim: String,
    },
    /// The driver does not run here.
    #[error("ResourceClaim {claim:?}: DRA driver {driver} is not registered on this node")]
    NoDriver {
        /// Name of the claim.
        claim: String,
        /// Name of the driver.
        driver: String,
    },
    /// The driver failed.
    #[error("ResourceClaim {claim:?}: DRA driver {driver}")]
    Driver {
        /// Name of the claim.
        claim: String,
        /// Name of the driver.
        driver: String,
        /// The cause.
        #[source]
        source: DriverError,
    },
    /// It cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
}
