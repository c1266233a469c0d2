//! Whether index and log tell the same: what a single file cannot show, such as one that is older than the others.

use super::{
    panics::joined,
    record::{Marks, Record, Version, number},
    view::View,
};
use crate::{Revision, StoreError};
use fjall::{Guard, Keyspace, Readable, Snapshot};
use std::{collections::HashMap, ops::RangeBounds, thread};
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

/// Reads everything once: the index here, and each half of the log in a thread of its own. Returns the revisions of values
/// that an earlier version has left in compacted history although their keys are gone; they are to be removed.
pub(super) fn verify(view: &View<'_>, first: bool) -> Result<Vec<Revision>, Mismatch> {
    let mut marks = view.marks()?;
    if first {
        // Earlier versions did not write down what a crash took.
        marks.whole_from = Revision::MAX - 1;
    }
    let (at, index, log) = (&view.at, &view.files.index, &view.files.log);
    let middle = middle(at, log)?.to_be_bytes();
    let (keys, lower, upper) = thread::scope(|scope| {
        let lower = scope.spawn(|| Part::read(at, log, ..middle, &marks));
        let upper = scope.spawn(|| Part::read(at, log, middle.., &marks));
        (indexed(at, index), joined(lower), joined(upper))
    });
    let mut newest = Part::join(lower?, upper?, &marks)?;
    for (key, modified) in keys? {
        if newest.remove(&key) != Some(Some(modified)) {
            return Err(Mismatch::Index(modified));
        }
    }
    let tolerated = if marks.no_orphans { 0 } else { marks.compacted };
    let (orphans, missing): (Vec<_>, Vec<_>) =
        newest.into_values().flatten().partition(|revision| *revision <= tolerated);
    if missing.is_empty() { Ok(orphans) } else { Err(Mismatch::Keys(missing.len())) }
}

/// The revision of every key's value, as the index has it.
fn indexed(at: &Snapshot, index: &Keyspace) -> Result<Vec<(u128, Revision)>, Mismatch> {
    let mut keys = Vec::new();
    for entry in at.prefix(index, "/") {
        let (key, raw) = entry.into_inner()?;
        keys.push((xxh3_128(&key), Version::decode(&raw)?.modified));
    }
    Ok(keys)
}

/// A revision in the middle of those that the log has.
fn middle(at: &Snapshot, log: &Keyspace) -> Result<Revision, Mismatch> {
    let ends = [at.first_key_value(log), at.last_key_value(log)];
    let mut sum = 0u128;
    for key in ends.into_iter().flatten().map(Guard::key) {
        sum += u128::from(number(&key?, 0)?);
    }
    Ok((sum / 2) as Revision)
}

/// The newest change of every key; none for a key that is deleted.
type Newest = HashMap<u128, Option<Revision>>;

/// A part of the log.
#[derive(Default)]
struct Part {
    /// Its first and its last revision.
    ends: Option<(Revision, Revision)>,
    newest: Newest,
}

impl Part {
    fn read(
        at: &Snapshot,
        log: &Keyspace,
        revisions: impl RangeBounds<[u8; 8]>,
        marks: &Marks,
    ) -> Result<Self, Mismatch> {
        let mut part = Self::default();
        for entry in at.range(log, revisions) {
            let (revision, raw) = entry.into_inner()?;
            let (revision, record) = (number(&revision, 0)?, Record::decode(&raw)?);
            if let Some((_, last)) = part.ends {
                marks.unbroken(last, revision)?;
            }
            part.ends = Some((part.ends.map_or(revision, |(first, _)| first), revision));
            part.newest.insert(xxh3_128(record.key.as_bytes()), record.value.map(|_| revision));
        }
        Ok(part)
    }

    fn join(lower: Self, upper: Self, marks: &Marks) -> Result<Newest, Mismatch> {
        let mut last = 0;
        for (first, end) in [lower.ends, upper.ends].into_iter().flatten() {
            marks.unbroken(last, first)?;
            last = end;
        }
        let mut newest = lower.newest;
        newest.extend(upper.newest);
        Ok(newest)
    }
}

impl Marks {
    fn unbroken(&self, last: Revision, next: Revision) -> Result<(), Mismatch> {
        match self.follows(last, next) {
            true => Ok(()),
            false => Err(Mismatch::Missing(last.max(self.compacted).max(self.whole_from) + 1)),
        }
    }

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
