//! Whether index and log tell the same: what a single file cannot show, such as one that is older than the others.

use super::{
    disk::View,
    record::{Marks, Record, Version, number},
};
use crate::store::{Revision, StoreError};
use fjall::Readable;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// Why index and log do not belong together.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mismatch {
    /// A number was skipped.
    #[error("revision {0} is missing")]
    Missing(Revision),
    /// The log has a value that the index does not lead to, or the other way round.
    #[error("revision {0} and the index do not agree on a key")]
    Index(Revision),
    /// The log has values of keys that the index does not have.
    #[error("{0} keys are missing in the index")]
    Keys(usize),
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] StoreError),
}

impl From<fjall::Error> for Mismatch {
    fn from(error: fjall::Error) -> Self {
        Self::Read(error.into())
    }
}

/// Reads everything once. Returns the revisions of values that an earlier version has left in compacted history although
/// their keys are gone; they are to be removed.
pub(super) fn verify(view: &View<'_>, first: bool) -> Result<Vec<Revision>, Mismatch> {
    let mut marks = view.marks()?;
    if first {
        // Earlier versions did not write down what a crash took.
        marks.whole_from = Revision::MAX - 1;
    }
    let mut live = newest(view, &marks)?;
    for entry in view.at.prefix(&view.files.index, "/") {
        let (key, raw) = entry.into_inner()?;
        let version = Version::decode(&raw)?;
        if live.remove(&xxh3_128(&key)) != Some(version.modified) {
            return Err(Mismatch::Index(version.modified));
        }
    }
    let tolerated = if marks.no_orphans { 0 } else { marks.compacted };
    let (orphans, missing): (Vec<_>, Vec<_>) =
        live.into_values().partition(|revision| *revision <= tolerated);
    if missing.is_empty() { Ok(orphans) } else { Err(Mismatch::Keys(missing.len())) }
}

/// The revision of every key's value, as the log has it.
fn newest(view: &View<'_>, marks: &Marks) -> Result<HashMap<u128, Revision>, Mismatch> {
    let (mut live, mut last) = (HashMap::new(), 0);
    for entry in view.at.iter(&view.files.log) {
        let (revision, raw) = entry.into_inner()?;
        let (revision, record) = (number(&revision, 0)?, Record::decode(&raw)?);
        if !marks.follows(last, revision) {
            return Err(Mismatch::Missing(last.max(marks.compacted).max(marks.whole_from) + 1));
        }
        last = revision;
        let key = xxh3_128(record.key.as_bytes());
        match record.value {
            Some(_) => live.insert(key, revision),
            None => live.remove(&key),
        };
    }
    Ok(live)
}

impl Marks {
    /// Whether no change can be between the two: of compacted history only some are left, and a crash may have taken
    /// revisions that were never written.
    fn follows(&self, last: Revision, next: Revision) -> bool {
        let mut last = last.max(self.compacted).max(self.whole_from);
        for (from, again) in &self.lost {
            if (*from..*again).contains(&last) {
                last = *again;
            }
        }
        next <= last + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compaction_and_crashes_leave_gaps() {
        let marks = Marks { compacted: 10, lost: vec![(20, 30), (30, 40)], ..Marks::default() };
        for (last, next, follows) in [
            (3, 7, true),
            (3, 11, true),
            (3, 12, false),
            (15, 16, true),
            (15, 17, false),
            (20, 41, true),
            (20, 42, false),
        ] {
            assert_eq!(marks.follows(last, next), follows, "{last} {next}");
        }
    }
}
