//! Writes that were cut off after they were stored, and before their revision was noted.

use std::collections::{BTreeMap, HashMap, HashSet};

use coracle_trace::{Flags, Record, SpanId, Stage, Uid};

use crate::block::StoredRecord;
use crate::decoder::RecordRef;
use crate::filter::Key;
use crate::keep_error::KeepError;
use crate::pieces::Window;
use crate::search::Search;

/// Clocks of nodes may be behind by this: what follows from a write seems to begin before it then.
const SKEW: u64 = 5_000_000_000;

/// Whether a write of an object ended without an answer: it may be stored, and its revision is not known.
pub(crate) fn is_cut_off(record: &Record) -> bool {
    let without_answer = Flags::UNFINISHED | Flags::CANCELLED;
    let is_cut = record.flags.0 & without_answer.0 != 0;
    record.stage == Stage::Write && record.revision == 0 && is_cut && !record.subject.is_none()
}

/// What is known about the revisions of one object.
#[derive(Default)]
struct Revisions {
    /// Those of writes, with their begins.
    written: HashMap<u64, u64>,
    /// Those that something followed from, with the first begin of that.
    followed: BTreeMap<u64, u64>,
}

impl Revisions {
    fn note(&mut self, found: &RecordRef<'_>) {
        let record = &found.record;
        if record.revision == 0 {
            return;
        }
        if record.stage == Stage::Write {
            self.written.insert(record.revision, found.start);
        } else if record.parent == SpanId::of_write(record.subject, record.revision) {
            let first = self.followed.entry(record.revision).or_insert(found.start);
            *first = found.start.min(*first);
        }
    }

    /// The first revision after those that were written before, if something followed from it and no other write has it.
    fn take(&mut self, write: &StoredRecord) -> Option<u64> {
        let earlier = self.written.iter().filter(|(_, start)| **start < write.start);
        let newest = earlier.map(|(revision, _)| *revision).max().unwrap_or(0);
        let mut later = self.followed.range(newest + 1..);
        let is_of_it =
            |revision: &u64, first: u64| !self.written.contains_key(revision) && first + SKEW >= write.start;
        let revision = *later.find(|(revision, first)| is_of_it(revision, **first))?.0;
        self.followed.remove(&revision);
        Some(revision)
    }
}

impl Search {
    /// The revisions of writes that were cut off, by span.
    pub(crate) fn revisions_of_cut_off(
        &mut self,
        mut writes: Vec<&StoredRecord>,
    ) -> Result<HashMap<SpanId, u64>, KeepError> {
        if writes.is_empty() {
            return Ok(HashMap::new());
        }
        let subjects: HashSet<Uid> = writes.iter().map(|write| write.record.subject).collect();
        let keys: Vec<Key> = subjects.iter().map(|uid| Key::uid(*uid)).collect();
        let mut known: HashMap<Uid, Revisions> = HashMap::new();
        self.visit(&keys, Window::since(0), |found, _| {
            if subjects.contains(&found.record.subject) {
                known.entry(found.record.subject).or_default().note(found);
            }
        })?;
        writes.sort_unstable_by_key(|write| write.start);
        let revision = |write: &StoredRecord| {
            let revision = known.get_mut(&write.record.subject)?.take(write)?;
            Some((write.record.span, revision))
        };
        Ok(writes.into_iter().filter_map(revision).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::assemble::assemble;
    use crate::keep::Keep;
    use crate::search::{Question, find};
    use crate::testing::{BEGIN, MS, limits, record, write_record};
    use crate::tree::Tree;

    /// A pod that is bound by a write without a revision, and seen by its node with revision 12; then its node reports.
    fn bound(flags: Flags, others: &[StoredRecord]) -> Tree {
        let below = |mut stored: StoredRecord, parent: u64| {
            stored.record.parent = SpanId(parent);
            stored
        };
        let mut bind = record(Stage::Write, 2, SpanId(11), 12, 1).about(8, 0).says("bind pods a/web");
        bind.record.flags = flags;
        let mut seen = record(Stage::Seen, 3, SpanId::of_write(Uid(8), 12), 13, 1).about(8, 12);
        seen.node = "n1".into();
        let start = SpanId::of_stage(Uid(8), Stage::PodStart);
        let mut starting = record(Stage::PodStart, start.0, SpanId::of_write(Uid(8), 12), 13, 9).about(8, 12);
        starting.node = "n1".into();
        let mut records = vec![
            record(Stage::Request, 100, SpanId::NONE, 9, 5).says("POST /pods\nadmin\nkubectl"),
            below(write_record(8, 11, "create pods a/web"), 100),
            bind,
            seen,
            starting,
            below(write_record(8, 18, "patch pods a/web"), start.0),
            record(Stage::Reconcile, 5, SpanId::of_write(Uid(8), 18), 19, 1).about(8, 18).says("rs a/web"),
        ];
        records.extend_from_slice(others);
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        keep.append_records(&records).unwrap();
        let found =
            find(&keep, &[], &Question { uid: Some(Uid(8)), last: 9, ..Question::default() }).unwrap();
        let mut trees = assemble(found, BEGIN + 50 * MS);
        assert_eq!(trees.len(), 1);
        trees.remove(0)
    }

    fn parent_of_seen(tree: &Tree) -> Option<(&str, u64)> {
        let seen = tree.spans.iter().find(|span| span.stage == Stage::Seen)?;
        let parent = &tree.spans[seen.parent?];
        Some((parent.name.as_str(), parent.revision))
    }

    #[test]
    fn what_followed_from_a_write_that_was_cut_off_hangs_below_it() {
        assert_eq!(parent_of_seen(&bound(Flags::UNFINISHED, &[])), Some(("bind", 12)));
        assert_eq!(parent_of_seen(&bound(Flags::CANCELLED, &[])), Some(("bind", 12)));
    }

    #[test]
    fn a_revision_of_another_write_is_left_to_it() {
        let mut again = write_record(8, 12, "bind pods a/web");
        again.record.parent = SpanId(11);
        let tree = bound(Flags::UNFINISHED, &[again]);
        assert_eq!(parent_of_seen(&tree), Some(("bind", 12)));
        let binds = tree.spans.iter().filter(|span| span.name == "bind" && span.revision == 12);
        assert_eq!(binds.count(), 1);
    }

    #[test]
    fn a_write_that_was_refused_has_no_revision() {
        let tree = bound(Flags::FAILED, &[]);
        let bind = tree.spans.iter().find(|span| span.name == "bind").unwrap();
        assert_eq!(bind.revision, 0);
    }
}
