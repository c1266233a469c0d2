//! Converts errors of the engine's modules to CRI errors.

use coracle_cli::causes::chain;
use std::fmt::Display;

use super::{cgroup, cni, image, keeper, run_lock, spec, user};
use crate::runtime::RuntimeError;
use coracle_keeper::wire::FailureKind;

/// An internal error with a description of the operation.
pub fn internal<E: Display>(what: impl Display) -> impl FnOnce(E) -> RuntimeError {
    move |error| RuntimeError::Internal(format!("{what}: {error}"))
}

impl From<run_lock::Error> for RuntimeError {
    fn from(error: run_lock::Error) -> Self {
        Self::Internal(format!("engine: {}", chain(&error)))
    }
}

impl From<cgroup::Error> for RuntimeError {
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::BadPath(_) => Self::InvalidArgument(chain(&error)),
            _ => Self::Internal(chain(&error)),
        }
    }
}

impl From<keeper::Error> for RuntimeError {
    fn from(error: keeper::Error) -> Self {
        match &error {
            keeper::Error::Gone | keeper::Error::Start { .. } => Self::Unavailable(chain(&error)),
            keeper::Error::Failed(failure) if failure.kind == FailureKind::NotFound => {
                Self::NotFound(chain(&error))
            }
            _ => Self::Internal(chain(&error)),
        }
    }
}

impl From<cni::Error> for RuntimeError {
    fn from(error: cni::Error) -> Self {
        Self::Internal(chain(&error))
    }
}

impl From<image::Error> for RuntimeError {
    fn from(error: image::Error) -> Self {
        let text = chain(&error);
        match error {
            image::Error::BadReference { .. } => Self::BadImageName(text),
            image::Error::NotFound { .. } | image::Error::Unknown { .. } => Self::NotFound(text),
            image::Error::Unauthorized { .. } => Self::PermissionDenied(text),
            image::Error::Registry { .. } => Self::Unavailable(text),
            image::Error::InUse { .. } => Self::FailedPrecondition(text),
            image::Error::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC) => {
                Self::ResourceExhausted(text)
            }
            _ => Self::Internal(text),
        }
    }
}

impl From<spec::Error> for RuntimeError {
    fn from(error: spec::Error) -> Self {
        Self::InvalidArgument(format!("failed to generate container spec: {error}"))
    }
}

impl From<user::Error> for RuntimeError {
    fn from(error: user::Error) -> Self {
        Self::InvalidArgument(format!("failed to generate user string: {error}"))
    }
}
