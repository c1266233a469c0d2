//! Records below a stage that an object has once.

use coracle_trace::{Record, SpanId, Stage};

use crate::block::StoredRecord;
use crate::tree::ObjectKey;

/// The stage of the subject's life that is the parent of this record.
pub(crate) fn single_stage(record: &Record) -> Option<Stage> {
    // The subject of a request is its audit id, which the client may have chosen.
    let is_about = !record.subject.is_none() && record.stage != Stage::Request;
    [Stage::PodStart, Stage::Terminate]
        .into_iter()
        .find(|stage| is_about && SpanId::of_stage(record.subject, *stage) == record.parent)
}

/// The stage of a pod's life that follows from a write. Other writes, such as reports of the status, neither start a pod nor end it.
pub(crate) fn single_below(write: &StoredRecord) -> Option<Stage> {
    let written = (write.record.stage == Stage::Write).then(|| ObjectKey::of_write(&write.text)).flatten();
    written.filter(|(_, object)| object.resource == "pods").and_then(|(verb, _)| match verb {
        "create" | "bind" => Some(Stage::PodStart),
        "delete" => Some(Stage::Terminate),
        _ => None,
    })
}
