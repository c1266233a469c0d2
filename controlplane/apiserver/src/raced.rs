//! Why a change was not stored: a race, or a failure.

use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;

/// Why a change was not stored.
pub(super) enum Raced {
    /// Somebody else was faster; nothing was written.
    Retry,
    /// It cannot be.
    Failed(ApiError),
}

impl From<ApiError> for Raced {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl Raced {
    /// A client that named a resource version is told of the race instead of a silent retry.
    pub(super) fn or_insist(self, insists: bool, kind: &Kind, name: &str) -> Self {
        match self {
            Self::Retry if insists => Self::Failed(ApiError::modified(&kind.group, &kind.plural, name)),
            other => other,
        }
    }
}
