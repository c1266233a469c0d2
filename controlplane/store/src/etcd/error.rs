//! Errors of etcd.

use etcd_client::Error;
use std::string::FromUtf8Error;

/// Why etcd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// It refused, or was not reached.
    #[error("etcd: {0}")]
    Client(Error),
    /// A write has no revision.
    #[error("etcd: an answer without a revision")]
    NoRevision,
    /// A key is not UTF-8.
    #[error("etcd: a key is no text: {0}")]
    Key(FromUtf8Error),
    /// A watch ended without a reason.
    #[error("etcd: the watch ended")]
    Ended,
    /// A watch was canceled for this reason.
    #[error("etcd: the watch was canceled: {0}")]
    Canceled(String),
}
