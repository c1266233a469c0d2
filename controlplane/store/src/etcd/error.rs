//! Errors of etcd.

use super::{no_quorum::NoQuorum, reason};
use crate::{Revision, StoreError, Unhealthy};
use etcd_client::Error;
use std::{io, path::PathBuf, string::FromUtf8Error, time::Duration};
use tonic::Code;

/// What a member says to whom waits for a read when another leader was elected; the read can be repeated at once.
const LEADER_CHANGED: &str = "etcdserver: leader changed";
/// What a member says that has no leader, before it looks at the request.
const NO_LEADER: &str = "etcdserver: no leader";
/// What a member says that ends.
const STOPPED: &str = "etcdserver: server stopped";

/// Why etcd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// It refused, or was not reached.
    #[error("etcd: {}", reason::of_client(.0))]
    Client(Error),
    /// It did not answer in time.
    #[error("etcd did not answer within {0:?}")]
    Timeout(Duration),
    /// The endpoint is not used any more, or its leader has been replaced. What was asked for may have happened.
    #[error("etcd: {0} was given up")]
    GivenUp(String),
    /// Too few members are reached, or they have no leader. Nothing was sent.
    #[error("{0}")]
    NoQuorum(NoQuorum),
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

impl From<Error> for EtcdError {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<EtcdError> for StoreError {
    fn from(error: EtcdError) -> Self {
        match error {
            EtcdError::NoQuorum(_) => Self::Unavailable(Unhealthy::Unreachable { detail: error.to_string() }),
            error => Self::Etcd(error),
        }
    }
}

/// What an error says about the endpoint that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It works.
    Well,
    /// It has no leader, or is slow.
    Doubtful,
    /// Its connection is broken.
    Gone,
}

impl EtcdError {
    /// What it says about the endpoint.
    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Timeout(_) => Standing::Doubtful,
            Self::Client(Error::GRpcStatus(status)) if self.is_answer() => match status.message() {
                LEADER_CHANGED => Standing::Well,
                STOPPED => Standing::Gone,
                _ if self.is_transient() => Standing::Doubtful,
                _ => Standing::Well,
            },
            Self::Client(_) if self.is_transient() => Standing::Gone,
            _ => Standing::Well,
        }
    }

    /// Whether a member said it, instead of what is between here and there.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.message().starts_with("etcdserver:"))
    }

    /// Whether a member refused a request because it has no leader. Nothing was done.
    pub(super) fn is_without_leader(&self) -> bool {
        matches!(self, Self::Client(Error::GRpcStatus(status)) if status.message() == NO_LEADER)
    }

    /// Whether it is not known what became of a write.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous(_))
    }

    /// Whether another endpoint, or the same one a moment later, may answer. What was asked for may have happened.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout(_)
            | Self::GivenUp(_)
            | Self::Client(Error::TransportError(_) | Error::IoError(_)) => true,
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

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn members_that_answer_are_not_given_up() {
        let said = |code, text: &str| EtcdError::Client(Error::GRpcStatus(Status::new(code, text)));
        for (error, standing, transient) in [
            (said(Code::Unavailable, LEADER_CHANGED), Standing::Well, true),
            (said(Code::Unavailable, NO_LEADER), Standing::Doubtful, true),
            (said(Code::Unavailable, "etcdserver: request timed out"), Standing::Doubtful, true),
            (said(Code::Unavailable, STOPPED), Standing::Gone, true),
            (said(Code::PermissionDenied, "etcdserver: permission denied"), Standing::Well, false),
            (said(Code::Unknown, "transport error"), Standing::Gone, true),
            (EtcdError::Timeout(Duration::from_secs(1)), Standing::Doubtful, true),
            (EtcdError::GivenUp("http://a:1".to_owned()), Standing::Well, true),
            (EtcdError::NoRevision, Standing::Well, false),
        ] {
            assert_eq!((error.standing(), error.is_transient()), (standing, transient), "{error}");
        }
        assert!(said(Code::Unavailable, NO_LEADER).is_without_leader());
        assert!(!said(Code::Unavailable, LEADER_CHANGED).is_without_leader());
    }
}
