//! One change of one object, as watchers get it.

use crate::object::Object;
use bytes::Bytes;
use coracle_store::Revision;
use std::sync::Arc;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was removed; the event's object carries the revision of the removal.
    Deleted,
}

impl EventType {
    /// The word in a watch event.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub what: EventType,
    /// The object after the change; for a removal the last state at the revision of the removal.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
    /// `{"type":…,"object":…}` with a newline, as watchers get it; `object.json` is a part of the same memory.
    pub line: Bytes,
}

/// The ring does not reach back to the revision; the watcher lists again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The revision that was asked for.
    pub asked: Revision,
    /// The oldest that would have worked.
    pub oldest: Revision,
}
