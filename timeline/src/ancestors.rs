//! From the writes of an object up to what caused them.

use std::collections::{HashMap, HashSet};

use coracle_trace::{Flags, Record, SpanId, Stage, Uid};

use crate::block::StoredRecord;
use crate::filter::Key;
use crate::keep_error::KeepError;
use crate::parents::{ids, may_hang};
use crate::pieces::Window;
use crate::search::{Known, LEVELS, Search};
use crate::single_stage::single_stage;

/// The way from some writes of an object to their root.
pub(crate) struct Chain {
    pub(crate) root: Known,
    /// Between the root and the first seed, the root included unless it is a seed.
    pub(crate) above: HashMap<SpanId, Known>,
    pub(crate) seeds: HashMap<SpanId, Known>,
}

impl Chain {
    /// Chains that begin with a request, or in which the object was made or deleted, come first; then the newest.
    fn rank(&self) -> (bool, u64) {
        let verbs = self.seeds.values().filter_map(|seed| seed.stored.text.split(' ').next());
        let changes = verbs.into_iter().any(|verb| verb == "create" || verb == "delete");
        (changes || self.root.stored.record.stage == Stage::Request, self.root.stored.start)
    }
}

impl Search {
    /// Follows the parents of each seed, all of them one level at a time.
    pub(crate) fn chains(&mut self, seeds: Vec<Known>) -> Result<Vec<Chain>, KeepError> {
        let mut by_id: HashMap<SpanId, Known> = HashMap::new();
        let mut uids: HashSet<Uid> = HashSet::new();
        let mut tops = seeds.clone();
        for seed in seeds.iter().rev() {
            ids(&seed.stored.record).for_each(|id| drop(by_id.insert(id, seed.clone())));
        }
        for _ in 0..LEVELS {
            uids.extend(tops.iter().flat_map(|top| uids_of(&top.stored)));
            let wanted: HashSet<SpanId> = tops
                .iter()
                .flat_map(|top| parents_of(&top.stored.record))
                .filter(|id| !by_id.contains_key(id))
                .collect();
            if wanted.is_empty() {
                break;
            }
            let keys: Vec<Key> =
                wanted.iter().map(|id| Key::span(*id)).chain(uids.iter().map(|uid| Key::uid(*uid))).collect();
            let mut found: HashMap<SpanId, Known> = HashMap::new();
            self.visit(&keys, Window::since(0), |record, open| {
                if ids(&record.record).any(|id| wanted.contains(&id)) {
                    let known = found.entry(record.record.span);
                    known.or_insert_with(|| Known { stored: record.to_stored(), open });
                }
            })?;
            tops = found.into_values().collect();
            for top in &tops {
                ids(&top.stored.record).for_each(|id| drop(by_id.insert(id, top.clone())));
            }
        }
        Ok(group_by_root(seeds, &by_id))
    }
}

fn group_by_root(seeds: Vec<Known>, by_id: &HashMap<SpanId, Known>) -> Vec<Chain> {
    let seed_ids: HashSet<SpanId> = seeds.iter().map(|seed| seed.stored.record.span).collect();
    let mut chains: HashMap<SpanId, Chain> = HashMap::new();
    for seed in seeds {
        let mut above = Vec::new();
        let mut top = seed.clone();
        let mut passed = HashSet::from([top.stored.record.span]);
        while let Some(parent) = parent_of(&top, by_id) {
            if !passed.insert(parent.stored.record.span) {
                break;
            }
            above.push(parent.clone());
            top = parent.clone();
        }
        let chain = chains.entry(top.stored.record.span).or_insert_with(|| Chain {
            root: top,
            above: HashMap::new(),
            seeds: HashMap::new(),
        });
        // What is below another seed followed from it, and is found on the way down.
        let is_seed = |known: &Known| seed_ids.contains(&known.stored.record.span);
        let first = above.iter().rposition(is_seed).map_or(0, |seed| seed + 1);
        chain.above.extend(above.drain(first..).map(|known| (known.stored.record.span, known)));
        chain.seeds.insert(seed.stored.record.span, seed);
    }
    let mut chains: Vec<Chain> = chains.into_values().collect();
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.rank()));
    chains
}

/// The record that another one hangs below.
fn parent_of<'a>(known: &Known, by_id: &'a HashMap<SpanId, Known>) -> Option<&'a Known> {
    let StoredRecord { record, node, .. } = &known.stored;
    let mut parents = parents_of(record).filter_map(|id| by_id.get(&id));
    parents.find(|parent| may_hang(record, node, &parent.stored))
}

/// The parent, and where that may not have been recorded yet, its parent.
fn parents_of(record: &Record) -> impl Iterator<Item = SpanId> + use<> {
    let parent = (!record.parent.is_none() && !is_remote(record)).then_some(record.parent);
    let write = single_stage(record).map(|_| SpanId::of_write(record.subject, record.revision));
    parent.into_iter().chain(write)
}

/// The objects that a record is about.
pub(crate) fn uids_of(stored: &StoredRecord) -> impl Iterator<Item = Uid> + use<> {
    let subject = (stored.record.stage != Stage::Request).then_some(stored.record.subject);
    let owner = stored.details.map(|details| details.owner);
    [subject, owner].into_iter().flatten().filter(|uid| !uid.is_none())
}

/// Its parent is a span of a client, which may have any id.
pub(crate) fn is_remote(record: &Record) -> bool {
    record.flags.contains(Flags::REMOTE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::keep::Keep;
    use crate::search::{Question, find};
    use crate::testing::{limits, record, write_record};
    use crate::tree::ObjectKey;

    #[test]
    fn what_led_to_a_later_write_is_below_the_first_one() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        let below = |mut stored: StoredRecord, parent: SpanId| {
            stored.record.parent = parent;
            stored
        };
        let of_deployment = SpanId::of_write(Uid(7), 11);
        let of_pod = SpanId::of_write(Uid(8), 12);
        keep.append_records(&[
            write_record(7, 11, "create deployments.apps default/web"),
            record(Stage::Reconcile, 1, of_deployment, 11, 9).about(7, 11).says("deployment web"),
            below(write_record(8, 12, "create pods default/a"), SpanId(1)),
            below(write_record(9, 13, "create pods default/b"), SpanId(1)),
            record(Stage::Reconcile, 2, of_pod, 14, 1).about(8, 12).says("deployment web"),
            below(write_record(7, 15, "update deployments.apps default/web"), SpanId(2)),
        ])
        .unwrap();
        let object = ObjectKey {
            resource: "deployments.apps".into(),
            namespace: "default".into(),
            name: "web".into(),
        };
        let found = find(&keep, &[], &Question { object: Some(object), ..Question::default() }).unwrap();
        let [group] = found.groups.as_slice() else { panic!("{found:?}") };
        let mut spans: Vec<u64> = group.records.iter().map(|known| known.stored.record.span.0).collect();
        spans.sort_unstable();
        assert_eq!(spans, [1, 2, 11, 12, 13, 15]);
    }
}
