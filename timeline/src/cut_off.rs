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
/// Writes that are looked at, at each level of a tree.
const MOST: usize = 256;

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

    fn sorted(mut self) -> Unwritten {
        self.followed.retain(|revision, _| !self.written.contains_key(revision));
        let mut newest: Vec<(u64, u64)> =
            self.written.into_iter().map(|(revision, start)| (start, revision)).collect();
        newest.sort_unstable();
        let mut so_far = 0;
        for (_, revision) in &mut newest {
            so_far = so_far.max(*revision);
            *revision = so_far;
        }
        Unwritten { newest, followed: self.followed }
    }
}

/// The revisions of one object that no write is known to have.
struct Unwritten {
    /// Begins of writes in order, with the newest revision of these and all before.
    newest: Vec<(u64, u64)>,
    /// Revisions that something followed from, with the first begin of that.
    followed: BTreeMap<u64, u64>,
}

impl Unwritten {
    /// The newest revision of the writes that began before a time.
    fn newest_before(&self, time: u64) -> u64 {
        let earlier = self.newest.partition_point(|(start, _)| *start < time);
        earlier.checked_sub(1).map_or(0, |last| self.newest[last].1)
    }

    /// The first revision after those that were written before, if something followed from it. The writes are asked for in order
    /// of their begins: what is too old for one is so for those after it.
    fn take(&mut self, write_start: u64) -> Option<u64> {
        let newest = self.newest_before(write_start);
        while let Some((revision, first)) = self.followed.pop_first() {
            if revision > newest && first.saturating_add(SKEW) >= write_start {
                return Some(revision);
            }
        }
        None
    }
}

/// Puts writes in order of their begins and leaves the first ones: a revision is that of the oldest write that may have it. Whether
/// there were more.
fn limit(writes: &mut Vec<&StoredRecord>) -> bool {
    writes.sort_unstable_by_key(|write| write.start);
    let is_more = writes.len() > MOST;
    writes.truncate(MOST);
    is_more
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
        self.truncated |= limit(&mut writes);
        let subjects: HashSet<Uid> = writes.iter().map(|write| write.record.subject).collect();
        let keys: Vec<Key> = subjects.iter().map(|uid| Key::uid(*uid)).collect();
        let mut known: HashMap<Uid, Revisions> = HashMap::new();
        self.visit(&keys, Window::since(0), |found, _| {
            if subjects.contains(&found.record.subject) {
                known.entry(found.record.subject).or_default().note(found);
            }
        })?;
        let mut known: HashMap<Uid, Unwritten> =
            known.into_iter().map(|(uid, revisions)| (uid, revisions.sorted())).collect();
        let revision = |write: &StoredRecord| {
            let revision = known.get_mut(&write.record.subject)?.take(write.start)?;
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

    /// Revisions of writes and of what followed, with their begins in seconds.
    fn unwritten(written: &[(u64, u64)], followed: &[(u64, u64)]) -> Unwritten {
        let nanos = |(revision, start): &(u64, u64)| (*revision, start.saturating_mul(1000 * MS));
        let revisions = Revisions {
            written: written.iter().map(nanos).collect(),
            followed: followed.iter().map(nanos).collect(),
        };
        revisions.sorted()
    }

    #[test]
    fn each_write_takes_the_first_revision_after_the_earlier_ones() {
        let second = |start: u64| start.saturating_mul(1000 * MS);
        // Revision 20 was written by another server, whose clock is behind.
        let written = [(10, 100), (20, 90), (30, 300)];
        let followed = [(5, 101), (10, 100), (21, 120), (22, 200), (31, 310), (40, 500)];
        let mut revisions = unwritten(&written, &followed);
        let taken = [110, 190, 301, 400, 600].map(|start| revisions.take(second(start)));
        assert_eq!(taken, [Some(21), Some(22), Some(31), Some(40), None]);
        // It followed more than 5 s before the write.
        let mut revisions = unwritten(&[], &[(1, 10), (2, 15)]);
        assert_eq!(revisions.take(second(20)), Some(2));
        assert_eq!(unwritten(&[], &[]).take(0), None);
    }

    #[test]
    fn extreme_revisions_and_times_are_compared() {
        let mut revisions = unwritten(&[(u64::MAX, 1)], &[(u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX)]);
        assert_eq!(revisions.take(u64::MAX), None);
        let mut revisions = unwritten(&[(1, 1)], &[(u64::MAX, u64::MAX)]);
        assert_eq!(revisions.take(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn the_oldest_of_many_writes_are_looked_at() {
        let many: Vec<StoredRecord> =
            (0..300).rev().map(|start| record(Stage::Write, start + 1, SpanId::NONE, start, 1)).collect();
        let mut writes: Vec<&StoredRecord> = many.iter().collect();
        assert!(limit(&mut writes));
        assert_eq!(writes.len(), MOST);
        assert!(writes.iter().zip(0..).all(|(write, start)| write.start == BEGIN + start * MS));
        assert!(!limit(&mut writes));
    }
}
