//! An event that was not sent yet.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

/// Event type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// An event as it was recorded.
pub(super) struct Draft {
    pub(super) about: ObjectReference,
    pub(super) kind: Kind,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) at: Timestamp,
}
