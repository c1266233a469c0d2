//! Why a pull brought no image.

use super::records::RecordError;
use coracle_engine::runtime::RuntimeError;

/// Why a pull brought no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The pull could not be recorded, so it is not started: any pod could use the image afterwards.
    #[error("failed to record the image pull")]
    Record(#[from] RecordError),
    #[error("image is not there after it was pulled")]
    Missing,
}

impl PullError {
    /// Reason for the container's waiting state.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Runtime(RuntimeError::RegistryUnavailable(_)) => "RegistryUnavailable",
            _ => "ErrImagePull",
        }
    }
}
