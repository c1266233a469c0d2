//! Records below a stage that an object has once.

use coracle_trace::{Record, SpanId, Stage};

/// The stage of the subject's life that is the parent of this record.
pub(crate) fn single_stage(record: &Record) -> Option<Stage> {
    // The subject of a request is its audit id, which the client may have chosen.
    let is_about = !record.subject.is_none() && record.stage != Stage::Request;
    [Stage::PodStart, Stage::Terminate]
        .into_iter()
        .find(|stage| is_about && SpanId::of_stage(record.subject, *stage) == record.parent)
}
