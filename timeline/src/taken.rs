//! Up to where the spans of each node were taken: a record beside the spans themselves, so that a crash loses both or none.

use coracle_trace::{SpanId, Stage, Uid};

use crate::block::StoredRecord;
use crate::filter::Key;
use crate::keep::{Keep, now};
use crate::keep_error::KeepError;
use crate::pieces::Pieces;
use crate::recover::marker;

/// Pieces that are looked at for the record of a node. Filters leave out nearly all that have none.
const MOST_PIECES: usize = 8;

/// A place in the spool of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Which spool: a node whose directory was removed has another one.
    pub spool: u64,
    /// Everything before it was taken.
    pub until: u64,
}

/// What the records of a node are found by: no object has this uid.
fn subject(node: &str) -> Uid {
    Uid::of(&format!("spans of node {node}"))
}

pub(crate) fn record(node: &str, taken: Taken) -> StoredRecord {
    let mut stored = marker(Stage::SpansTaken, now(), 0, taken.until, "");
    (stored.record.subject, stored.record.span) = (subject(node), SpanId(taken.spool));
    node.clone_into(&mut stored.node);
    stored
}

/// The newest record of a node.
pub(crate) fn newest(keep: &Keep, node: &str) -> Result<Option<Taken>, KeepError> {
    let (subject, mut found, mut pieces) = (subject(node), None, 0);
    Pieces::open(keep)?.each_newest(&[Key::uid(subject)], 0, &mut |records| {
        let is_of_node = |stored: &&StoredRecord| {
            stored.record.stage == Stage::SpansTaken && stored.record.subject == subject
        };
        let taken =
            |stored: &StoredRecord| Taken { spool: stored.record.span.0, until: stored.record.revision };
        found = records.iter().rfind(is_of_node).map(taken);
        pieces += 1;
        found.is_none() && pieces < MOST_PIECES
    })?;
    Ok(found)
}
