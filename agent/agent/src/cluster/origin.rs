//! The write that changed an object, as the watch told it.

use coracle_trace::Uid;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashMap;
use std::time::Instant;

use super::name::Name;
use super::wire::TRIGGER_TIME;

/// The write that changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The object.
    pub uid: Uid,
    /// The revision that the write gave it.
    pub revision: u64,
    /// When this node got it.
    pub at: Instant,
    /// When the endpoints changed, where an EndpointSlice says so.
    pub trigger: Option<Timestamp>,
}

impl Origin {
    /// The write of an object that arrived now; `None` for one without a revision.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let revision = meta.resource_version.as_deref()?.parse().ok()?;
        let annotation = meta.annotations.as_ref().and_then(|all| all.get(TRIGGER_TIME));
        let trigger = annotation.and_then(|time| time.parse().ok());
        Some(Origin { uid: Uid::of(meta.uid.as_deref()?), revision, at: Instant::now(), trigger })
    }
}

/// Names that changed, each with its newest write where that is known.
pub type Changed = HashMap<Name, Option<Origin>>;

/// Adds a change; one whose write is not known does not replace another.
pub(super) fn add(changed: &mut Changed, name: Name, origin: Option<Origin>) {
    let known = changed.entry(name).or_default();
    *known = origin.or(*known);
}
