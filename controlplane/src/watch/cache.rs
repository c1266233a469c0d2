//! One kind's objects, its ring of events, and cursors on it.

use crate::object::Object;
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

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub what: EventType,
    /// The object after the change; for a removal the last state at the revision of the removal.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
}
