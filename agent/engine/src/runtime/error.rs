//! Errors of a runtime, and gRPC statuses.

/// Errors of a runtime, by what the caller can do about them. Messages follow containerd's wording.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum RuntimeError {
    /// The sandbox, container or image does not exist. Final for this id.
    #[error("{0}")]
    NotFound(String),
    /// The request can never work as it is.
    #[error("{0}")]
    InvalidArgument(String),
    /// The name of an image cannot be parsed.
    #[error("{0}")]
    BadImageName(String),
    /// A sandbox or container with this name and attempt exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// The object is in the wrong state for this verb.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The caller's deadline is exceeded.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The registry or the host refused the credentials.
    #[error("{0}")]
    PermissionDenied(String),
    /// Disk, address range or another limited resource is exhausted; retry after something is freed.
    #[error("{0}")]
    ResourceExhausted(String),
    /// The runtime cannot be reached or is not ready; retry.
    #[error("{0}")]
    Unavailable(String),
    /// Another runtime says that the registry of an image cannot be reached (`RegistryUnavailable` of CRI).
    #[error("{0}")]
    RegistryUnavailable(String),
    /// The runtime does not have this verb.
    #[error("{0}")]
    Unimplemented(String),
    /// Anything else; retrying may help.
    #[error("{0}")]
    Internal(String),
}

impl RuntimeError {
    /// True when the named object does not exist, so that idempotent removal can go on.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}

impl From<tonic::Status> for RuntimeError {
    fn from(status: tonic::Status) -> Self {
        use tonic::Code;
        let message = status.message().to_owned();
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            Code::InvalidArgument | Code::OutOfRange => Self::InvalidArgument(message),
            Code::AlreadyExists => Self::AlreadyExists(message),
            Code::FailedPrecondition => Self::FailedPrecondition(message),
            Code::DeadlineExceeded => Self::DeadlineExceeded(message),
            Code::PermissionDenied | Code::Unauthenticated => Self::PermissionDenied(message),
            Code::ResourceExhausted => Self::ResourceExhausted(message),
            Code::Unavailable => Self::Unavailable(message),
            Code::Unimplemented => Self::Unimplemented(message),
            _ => Self::Internal(message),
        }
    }
}

impl From<RuntimeError> for tonic::Status {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::NotFound(m) => Self::not_found(m),
            RuntimeError::InvalidArgument(m) | RuntimeError::BadImageName(m) => Self::invalid_argument(m),
            RuntimeError::AlreadyExists(m) => Self::already_exists(m),
            RuntimeError::FailedPrecondition(m) => Self::failed_precondition(m),
            RuntimeError::DeadlineExceeded(m) => Self::deadline_exceeded(m),
            RuntimeError::PermissionDenied(m) => Self::permission_denied(m),
            RuntimeError::ResourceExhausted(m) => Self::resource_exhausted(m),
            RuntimeError::Unavailable(m) | RuntimeError::RegistryUnavailable(m) => Self::unavailable(m),
            RuntimeError::Unimplemented(m) => Self::unimplemented(m),
            RuntimeError::Internal(m) => Self::unknown(m),
        }
    }
}

/// Result of every verb of a [`Runtime`](super::Runtime).
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;
