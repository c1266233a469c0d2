//! Errors of etcd.

use crate::{Revision, StoreError, Unhealthy};
use etcd_client::Error;
use std::{io, path::PathBuf, string::FromUtf8Error, time::Duration};
use tonic::Code;

/// Why etcd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// It refused, or was not reached.
    #[error("etcd: {0}")]
    Client(#[from] Error),
    /// It did not answer in time.
    #[error("etcd did not answer within {0:?}")]
    Timeout(Duration),
    /// The endpoint of a watch is not used any more.
    #[error("etcd: {0} was given up")]
    GivenUp(String),
    /// Too few members are reached to elect a leader. Nothing was sent.
    #[error("etcd: {reached} of {of} members are reached, which is no majority")]
    NoMajority {
        /// How many.
        reached: usize,
        /// How many there are.
        of: usize,
    },
    /// No endpoint is configured.
    #[error("etcd has no endpoint")]
    NoEndpoint,
    /// The answer to a write was lost, and what etcd holds does not tell whether it happened.
    #[error("etcd: the answer was lost; whether the write of {0} happened is not known")]
    Ambiguous(String),
    /// A file of the connection cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// A file of the connection is too large.
    #[error("{}: larger than a certificate, key or password", .0.display())]
    FileSize(PathBuf),
    /// The password file is not text.
    #[error("{}: the password is not UTF-8", .0.display())]
    Password(PathBuf),
    /// A write has no revision.
    #[error("etcd: an answer without a revision")]
    NoRevision,
    /// A member was added, and the answer does not say which.
    #[error("etcd: an answer without the member that was added")]
    NoMember,
    /// A key is not UTF-8.
    #[error("etcd: a key is no text: {0}")]
    Key(FromUtf8Error),
    /// A key of somebody else.
    #[error("etcd: {0} is outside the key prefix")]
    Foreign(String),
    /// The revision offset is no number.
    #[error("etcd: {key} is not a number")]
    Offset {
        /// The key with its prefix.
        key: String,
    },
    /// A watch ended without a reason.
    #[error("etcd: the watch ended")]
    Ended,
    /// A watch was canceled for this reason.
    #[error("etcd: the watch was canceled: {0}")]
    Canceled(String),
}

impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> Self {
        match error {
            EtcdError::NoMajority { .. } => {
                Self::Unavailable(Unhealthy::Unreachable { detail: error.to_string() })
            }
            error => Self::Etcd(error),
        }
    }
}

impl EtcdError {
    /// Whether another endpoint, or the same one a moment later, may answer. What was asked for may have happened.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Client(Error::TransportError(_) | Error::IoError(_)) => true,
            Self::Client(Error::GRpcStatus(status)) => matches!(
                status.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Aborted
                    | Code::Internal
                    | Code::Unknown
            ),
            _ => false,
        }
    }

    /// Whether etcd, or a limit of it, has no room for a write. Nothing was written.
    pub(super) fn is_exhausted(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.code() == Code::ResourceExhausted)
    }

    /// Whether the user of this connection may not do it.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.code() == Code::PermissionDenied)
    }

    /// Whether the state of the cluster does not allow it: nothing was changed, and it may be allowed a moment later.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.code() == Code::FailedPrecondition)
    }

    /// Whether what was named is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.code() == Code::NotFound)
    }

    /// The error of a request at a revision. Compacted and future revisions have the same code (`OutOfRange`); etcd's own
    /// clients tell them apart by these texts, too.
    pub(super) fn at(self, revision: Revision) -> StoreError {
        match &self {
            Self::Client(Error::GRpcStatus(status)) if status.code() == Code::OutOfRange => {
                if status.message().contains("is a future revision") {
                    StoreError::Future(revision)
                } else {
                    StoreError::Compacted(revision)
                }
            }
            _ => self.into(),
        }
    }
}
