//! From the writes of an object down to all that followed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use coracle_trace::{Part, SpanId, Stage, Uid};

use crate::ancestors::{Chain, uids_of};
use crate::block::StoredRecord;
use crate::cut_off::is_cut_off;
use crate::decoder::RecordRef;
use crate::filter::{Key, may_be_parent};
use crate::keep_error::KeepError;
use crate::known::Known;
use crate::parents::{ids, is_remote, may_hang};
use crate::pieces::Window;
use crate::search::{Group, LEVELS, Search};
use crate::single_stage::single_below;

/// A child that began earlier than its root by more than this is none: the ids are those of another life.
const SKEW: u64 = 5_000_000_000;
/// Keys that are looked for in all pieces.
const FEW: usize = 256;
const SOON: u64 = 60 * 60 * 1_000_000_000;

impl Search {
    /// Adds everything that followed from the seeds, and the parts of what is above them.
    pub(crate) fn below(&mut self, chain: Chain) -> Result<Group, KeepError> {
        let root = chain.root.stored.record.span;
        let oldest = chain.root.stored.start.saturating_sub(SKEW);
        let turns: HashSet<String> =
            chain.above.values().filter_map(|known| turn_of(&known.stored)).collect();
        let mut included: HashMap<SpanId, Known> = chain.above.clone();
        included.extend(chain.seeds.clone());
        // What happened to a pod is all shown where its Deployment is asked for.
        let own = begin_of_own(&chain);
        let is_above = |known: Known| {
            let above = known.stored.start < own;
            (known.stored, above)
        };
        let mut level: Vec<(StoredRecord, bool)> = chain.above.into_values().map(is_above).collect();
        level.extend(chain.seeds.into_values().map(|known| (known.stored, false)));
        for _ in 0..LEVELS {
            let mut above_it = std::mem::take(&mut level);
            self.date_cut_off(&mut above_it, &mut included)?;
            let mut parents: HashMap<SpanId, (bool, &StoredRecord)> = HashMap::new();
            let mut keys: HashSet<Key> = HashSet::new();
            for (stored, above) in &above_it {
                keys.extend(uids_of(stored).map(Key::uid));
                // What is below other stages is about the same object.
                let by_span = may_be_parent(stored.record.stage) || stored.record.subject.is_none();
                for id in child_parents(stored) {
                    keys.extend(by_span.then(|| Key::span(id)));
                    let parent = parents.entry(id).or_insert((true, stored));
                    parent.0 &= above;
                }
            }
            if parents.is_empty() {
                break;
            }
            let keys: Vec<Key> = keys.into_iter().collect();
            let window = window(&above_it, keys.len(), oldest);
            let (mut room, mut truncated) = (self.room, false);
            self.visit(&keys, window, |found, open| {
                let record = &found.record;
                // After a restart of its agent, the start of a pod names a later write than the one that it hangs below.
                let single = || parents.get(&record.span).filter(|_| record.stage.is_single());
                let Some((only_parts, parent)) = parents.get(&record.parent).or_else(single) else { return };
                if *only_parts && !is_part(found, &turns) || found.start < oldest || is_remote(record) {
                    return;
                }
                if !may_hang(record, found.node, parent) {
                    return;
                }
                match included.entry(record.span) {
                    Entry::Occupied(mut known) => {
                        known.get_mut().merge(record, found.node, open, found.start, || found.to_stored());
                    }
                    Entry::Vacant(_) if room == 0 => truncated = true,
                    Entry::Vacant(new) => {
                        room -= 1;
                        let stored = found.to_stored();
                        level.push((stored.clone(), false));
                        new.insert(Known { stored, open });
                    }
                }
            })?;
            self.room = room;
            self.truncated |= truncated;
        }
        self.truncated |= !level.is_empty();
        Ok(Group { root, records: included.into_values().collect() })
    }

    /// Gives writes that were cut off the revisions that they turn out to have.
    fn date_cut_off(
        &mut self,
        level: &mut [(StoredRecord, bool)],
        included: &mut HashMap<SpanId, Known>,
    ) -> Result<(), KeepError> {
        let cut_off = level.iter().map(|(stored, _)| stored).filter(|stored| is_cut_off(&stored.record));
        let revisions = self.revisions_of_cut_off(cut_off.collect())?;
        for (stored, _) in level.iter_mut() {
            let Some(revision) = revisions.get(&stored.record.span) else { continue };
            stored.record.revision = *revision;
            if let Some(known) = included.get_mut(&stored.record.span) {
                known.stored.record.revision = *revision;
            }
        }
        Ok(())
    }
}

/// When the first thing above the seeds happened to an object that belongs to theirs.
fn begin_of_own(chain: &Chain) -> u64 {
    let writes = || chain.above.values().filter(|known| known.stored.record.stage == Stage::Write);
    let mut own: HashSet<Uid> = chain.seeds.values().map(|seed| seed.stored.record.subject).collect();
    own.remove(&Uid::NONE);
    loop {
        let known = own.len();
        let owned =
            writes().filter(|write| write.stored.details.is_some_and(|details| own.contains(&details.owner)));
        let owned: Vec<Uid> = owned.map(|write| write.stored.record.subject).collect();
        own.extend(owned);
        if own.len() == known {
            break;
        }
    }
    let is_own = |known: &&Known| {
        known.stored.record.stage != Stage::Request && own.contains(&known.stored.record.subject)
    };
    chain.above.values().filter(is_own).map(|known| known.stored.start).min().unwrap_or(u64::MAX)
}

/// Where the children of some records may be. Those of few objects are found however late they were; those of many, of which nearly
/// every filter seems to have one, if they began soon.
fn window(level: &[(StoredRecord, bool)], keys: usize, since: u64) -> Window {
    if keys <= FEW {
        return Window::since(since);
    }
    let end = level.iter().map(|(stored, _)| stored.end()).max().unwrap_or_default();
    Window { since, until: end.saturating_add(SOON) }
}

/// The ids that children of a record may have as their parent. What is below the start and the end of a pod is known before they
/// are: it hangs below the write that they will hang below.
fn child_parents(stored: &StoredRecord) -> impl Iterator<Item = SpanId> + use<> {
    let subject = stored.record.subject;
    ids(&stored.record).chain(single_below(stored).map(|stage| SpanId::of_stage(subject, stage)))
}

/// The text that a turn of a control loop shares with its time in the queue.
fn turn_of(stored: &StoredRecord) -> Option<String> {
    (stored.record.stage == Stage::Reconcile).then(|| stored.text.clone())
}

/// Of spans above the object: how they spent their time, but nothing else that they caused.
fn is_part(found: &RecordRef<'_>, turns: &HashSet<String>) -> bool {
    match found.record.stage {
        Stage::Write | Stage::Delivered | Stage::Request => false,
        Stage::Queued => turns.contains(found.text),
        stage => matches!(stage.part(), Part::Request | Part::Write),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::keep::Keep;
    use crate::search::{Question, find};
    use crate::testing::{limits, record, write_record};

    #[test]
    fn the_end_of_a_pod_is_no_part_of_its_creation() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        let stage_of = |stage| SpanId::of_stage(Uid(8), stage);
        let single = |stage, parent, start, duration, revision| {
            record(stage, stage_of(stage).0, parent, start, duration).about(8, revision)
        };
        let mut status = write_record(8, 20, "patch pods default/a");
        status.record.parent = SpanId(3);
        let mut stored = vec![
            write_record(8, 11, "create pods default/a"),
            single(Stage::PodStart, SpanId::of_write(Uid(8), 11), 12, 7, 11),
            record(Stage::StatusReport, 3, stage_of(Stage::PodStart), 18, 3).about(8, 11),
            status,
        ];
        keep.append_records(&stored).unwrap();
        let question = Question { uid: Some(Uid(8)), last: 5, ..Question::default() };
        let before = find(&keep, &[], &question).unwrap();
        stored = vec![
            write_record(8, 50, "delete pods default/a"),
            record(Stage::SandboxStop, 5, stage_of(Stage::Terminate), 52, 9).about(8, 50),
            single(Stage::Terminate, SpanId::of_write(Uid(8), 50), 51, 30, 50),
        ];
        keep.append_records(&stored).unwrap();
        let after = find(&keep, &[], &question).unwrap();
        let spans = |group: &Group| {
            let mut spans: Vec<u64> = group.records.iter().map(|known| known.stored.record.span.0).collect();
            spans.sort_unstable();
            spans
        };
        let [deletion, creation] = after.groups.as_slice() else { panic!("{after:?}") };
        assert_eq!(spans(creation), spans(&before.groups[0]), "a finished change stays as it was");
        assert_eq!(deletion.records.len(), 3);
    }
}
