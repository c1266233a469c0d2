//! From the writes of an object up to what caused them.

use std::collections::{HashMap, HashSet};

use coracle_trace::{Record, SpanId, Stage, Uid};

use crate::block::StoredRecord;
use crate::filter::{Key, may_be_parent};
use crate::keep_error::KeepError;
use crate::known::Known;
use crate::parents::{ids, is_remote, may_hang};
use crate::pieces::Window;
use crate::search::{LEVELS, Search};
use crate::single_stage::{single_below, single_stage};

/// Records that are remembered of pieces that were read on the way up.
const READ: usize = 20_000;
/// Nodes deliver their spans every second; after this time, in nanoseconds, the cause of a report is not expected any more.
const DELIVERED: u64 = 10 * 1_000_000_000;
/// Users that are nodes.
const NODE_USER: &str = "system:node:";

/// The way from some writes of an object to their root.
pub(crate) struct Chain {
    pub(crate) root: Known,
    /// Between the root and the first seed, the root included unless it is a seed.
    pub(crate) above: HashMap<SpanId, Known>,
    pub(crate) seeds: HashMap<SpanId, Known>,
}

impl Chain {
    /// Chains that begin with a request for the object, or in which it was made, deleted or evicted, come first; then the newest. A
    /// report of a node changes nothing: its cause may not have been delivered yet.
    fn rank(&self) -> (bool, u64) {
        let root = &self.root.stored;
        let is_request = root.record.stage == Stage::Request;
        let is_report = is_request && (has_parent(&root.record) || is_of_node(root));
        let changes = |seed: &Known| {
            if seed.stored.record.stage == Stage::Evicted {
                return true;
            }
            // What a trace begins with.
            if seed.stored.record.stage == Stage::Request {
                return !is_read(&seed.stored.text);
            }
            let verb = seed.stored.text.split(' ').next().unwrap_or_default();
            let is_asked_for = is_request && seed.stored.record.parent == root.record.span;
            verb == "create" || !is_report && (is_asked_for || verb == "delete")
        };
        (self.seeds.values().any(changes), root.start)
    }

    /// Whether it begins with a report of a node that names its cause, which the node has not delivered yet.
    fn awaits_cause(&self, now: u64) -> bool {
        let root = &self.root.stored;
        let is_report = root.record.stage == Stage::Request && has_parent(&root.record) && is_of_node(root);
        is_report && root.end().saturating_add(DELIVERED) >= now
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
        // Pieces that were read have what comes next, too.
        let mut read: HashMap<SpanId, Known> = HashMap::new();
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
            let at_hand: Vec<Known> = wanted.iter().filter_map(|id| read.get(id)).cloned().collect();
            if !at_hand.is_empty() {
                for known in &at_hand {
                    ids(&known.stored.record).for_each(|id| drop(by_id.insert(id, known.clone())));
                }
                // The parents of others may be in pieces that were not read yet.
                tops.retain(|top| parents_of(&top.stored.record).any(|id| !by_id.contains_key(&id)));
                tops.extend(at_hand);
                continue;
            }
            let keys: Vec<Key> =
                wanted.iter().map(|id| Key::span(*id)).chain(uids.iter().map(|uid| Key::uid(*uid))).collect();
            let mut found: HashMap<SpanId, Known> = HashMap::new();
            self.visit(&keys, Window::since(0), |record, open| {
                if ids(&record.record).any(|id| wanted.contains(&id)) {
                    let known = found.entry(record.record.span);
                    known.or_insert_with(|| Known { stored: record.to_stored(), open });
                } else if read.len() < READ && is_above(record.record.stage) {
                    for id in ids(&record.record) {
                        let known = read.entry(id);
                        known.or_insert_with(|| Known { stored: record.to_stored(), open });
                    }
                }
            })?;
            tops = found.into_values().collect();
            for top in &tops {
                ids(&top.stored.record).for_each(|id| drop(by_id.insert(id, top.clone())));
            }
        }
        Ok(group_by_root(seeds, &by_id))
    }

    /// Leaves out reports of nodes that will turn out to be a part of something else, unless there is nothing else.
    pub(crate) fn leave_out_reports(chains: &mut Vec<Chain>, now: u64) {
        if chains.iter().any(|chain| !chain.awaits_cause(now)) {
            chains.retain(|chain| !chain.awaits_cause(now));
        }
    }
}

fn group_by_root(seeds: Vec<Known>, by_id: &HashMap<SpanId, Known>) -> Vec<Chain> {
    let seed_ids: HashSet<SpanId> = seeds.iter().map(|seed| seed.stored.record.span).collect();
    let mut chains: HashMap<SpanId, Chain> = HashMap::new();
    let causes = causes(by_id);
    for seed in seeds {
        let mut above = Vec::new();
        let mut top = seed.clone();
        let mut passed = HashSet::from([top.stored.record.span]);
        while let Some(parent) = parent_of(&top, by_id, &causes) {
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

/// Writes that start or end pods, by pod and stage, with their revisions.
type Causes<'a> = HashMap<(Uid, Stage), Vec<&'a Known>>;

fn causes(by_id: &HashMap<SpanId, Known>) -> Causes<'_> {
    let mut causes = Causes::new();
    for known in by_id.values().filter(|known| known.stored.record.stage == Stage::Write) {
        if let Some(stage) = single_below(&known.stored) {
            causes.entry((known.stored.record.subject, stage)).or_default().push(known);
        }
    }
    causes
}

/// The record that another one hangs below. An agent that was restarted names a later write of a pod than the one that it starts or
/// ends because of.
fn parent_of<'a>(known: &Known, by_id: &'a HashMap<SpanId, Known>, causes: &Causes<'a>) -> Option<&'a Known> {
    let StoredRecord { record, node, .. } = &known.stored;
    let cause = causes.get(&(record.subject, record.stage)).into_iter().flatten().copied();
    let cause = cause.filter(|cause| cause.stored.record.revision <= record.revision);
    let cause = cause.max_by_key(|cause| cause.stored.record.revision);
    let mut parents = cause.into_iter().chain(parents_of(record).filter_map(|id| by_id.get(&id)));
    parents.find(|parent| may_hang(record, node, &parent.stored))
}

/// Whether other records may hang below one of this stage.
fn is_above(stage: Stage) -> bool {
    stage.is_single() || may_be_parent(stage)
}

/// Whether a request only reads. Its text begins with the method.
fn is_read(text: &str) -> bool {
    matches!(text.split(' ').next(), Some("GET" | "HEAD" | "OPTIONS"))
}

/// Whether a request was made by a node. Its first line is the user.
fn is_of_node(request: &StoredRecord) -> bool {
    let (_, who) = request.text.split_once('\n').unwrap_or_default();
    who.starts_with(NODE_USER)
}

/// Whether a record hangs below one that the server or a node makes.
fn has_parent(record: &Record) -> bool {
    !record.parent.is_none() && !is_remote(record)
}

/// The parent, and where that may not have been recorded yet, its parent.
fn parents_of(record: &Record) -> impl Iterator<Item = SpanId> + use<> {
    let parent = has_parent(record).then_some(record.parent);
    let write = single_stage(record).map(|_| SpanId::of_write(record.subject, record.revision));
    parent.into_iter().chain(write)
}

/// The objects that a record is about.
pub(crate) fn uids_of(stored: &StoredRecord) -> impl Iterator<Item = Uid> + use<> {
    let subject = (stored.record.stage != Stage::Request).then_some(stored.record.subject);
    let owner = stored.details.map(|details| details.owner);
    [subject, owner].into_iter().flatten().filter(|uid| !uid.is_none())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::keep::{Keep, now};
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

    fn request(span: u64, parent: SpanId, start: u64, user: &str) -> StoredRecord {
        record(Stage::Request, span, parent, start, 1).says(&format!("PATCH /x\n{user}\nagent"))
    }

    fn web() -> Question {
        let object =
            ObjectKey { resource: "deployments.apps".into(), namespace: "a".into(), name: "web".into() };
        Question { object: Some(object), ..Question::default() }
    }

    fn below(mut stored: StoredRecord, parent: u64) -> StoredRecord {
        stored.record.parent = SpanId(parent);
        stored
    }

    fn root_of(records: &[StoredRecord]) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 24)).unwrap();
        keep.append_records(records).unwrap();
        find(&keep, &[], &web()).unwrap().groups[0].root.0
    }

    #[test]
    fn the_change_is_a_request_for_the_object() {
        let created = [
            request(100, SpanId::NONE, 9, "admin"),
            below(write_record(7, 11, "create deployments.apps a/web"), 100),
        ];
        // The span of the node that the report hangs below has not been delivered yet.
        let report = [
            request(200, SpanId(199), 30, "system:node:node-2"),
            below(write_record(8, 31, "patch pods a/web-1"), 200),
            record(Stage::Reconcile, 3, SpanId::of_write(Uid(8), 31), 32, 2).about(8, 31).says("rs a/web"),
            below(write_record(7, 33, "update deployments.apps a/web"), 3),
        ];
        assert_eq!(root_of(&[&created[..], &report].concat()), 100);
        // Nor is one that the node began by itself.
        let mut unready = report.clone();
        unready[0].record.parent = SpanId::NONE;
        assert_eq!(root_of(&[&created[..], &unready].concat()), 100);
        let mut pod_deleted = unready.clone();
        pod_deleted[0] = request(200, SpanId::NONE, 30, "admin");
        pod_deleted[1] = below(write_record(8, 31, "delete pods a/web-1"), 200);
        assert_eq!(root_of(&[&created[..], &pod_deleted].concat()), 100, "its pod was deleted");
        let scaled = [
            request(300, SpanId::NONE, 40, "admin"),
            below(write_record(7, 41, "patch deployments.apps a/web"), 300),
        ];
        assert_eq!(root_of(&[&created[..], &report, &scaled].concat()), 300);
    }

    #[test]
    fn a_report_is_no_change_of_its_own_before_its_node_has_told_the_cause() {
        let created = [
            request(100, SpanId::NONE, 9, "admin"),
            below(write_record(7, 11, "create deployments.apps a/web"), 100),
        ];
        let roots = |records: &[StoredRecord]| {
            let dir = tempfile::tempdir().unwrap();
            let keep = Keep::open(dir.path(), limits(1 << 24)).unwrap();
            keep.append_records(records).unwrap();
            let found = find(&keep, &[], &Question { last: 9, ..web() }).unwrap();
            found.groups.iter().map(|group| group.root.0).collect::<Vec<_>>()
        };
        let reported = |start: u64, parent: SpanId, user: &str| {
            let mut report = [
                request(200, parent, 30, user),
                below(write_record(7, 31, "patch deployments.apps a/web"), 200),
            ];
            report.iter_mut().for_each(|stored| stored.start = start);
            report
        };
        let (cause, node) = (SpanId(199), "system:node:node-2");
        // Ahead of the clock: however slow the test is, the time for its cause has not passed.
        let (fresh, old) = (now() + 360 * DELIVERED, now() - 6 * DELIVERED);
        let report = reported(fresh, cause, node);
        assert_eq!(roots(&[&created[..], &report].concat()), [100]);
        assert_eq!(roots(&report), [200], "there is nothing else");
        assert_eq!(roots(&[&created[..], &reported(old, cause, node)].concat()), [200, 100], "it never came");
        // Nobody will tell another cause of these.
        assert_eq!(roots(&[&created[..], &reported(fresh, SpanId::NONE, node)].concat()), [200, 100]);
        assert_eq!(roots(&[&created[..], &reported(fresh, cause, "admin")].concat()), [200, 100]);
    }

    #[test]
    fn a_long_rollout_is_one_trace() {
        let mut records = vec![
            request(100, SpanId::NONE, 9, "admin"),
            below(write_record(7, 1000, "patch deployments.apps a/web"), 100),
        ];
        let mut cause = SpanId::of_write(Uid(7), 1000);
        for pod in 1..=60 {
            let (turn, revision) = (100_000 + pod, 1000 + 10 * pod);
            let uid = 100 + u128::from(pod);
            let start = SpanId::of_stage(Uid(uid), Stage::PodStart);
            let (made, reported) = (revision, revision + 5);
            records.extend([
                record(Stage::Reconcile, turn, cause, made, 1).says("rs a/web"),
                below(write_record(uid, made, &format!("create pods a/web-{pod}")), turn),
                record(Stage::PodStart, start.0, SpanId::of_write(Uid(uid), made), made + 1, 2)
                    .about(uid, made),
                record(Stage::StatusReport, turn + 1000, start, made + 3, 1).about(uid, made),
                request(turn + 2000, SpanId(turn + 1000), made + 3, "system:node:node-1"),
                below(write_record(uid, reported, &format!("patch pods a/web-{pod}")), turn + 2000),
                record(Stage::Reconcile, turn + 3000, SpanId::of_write(Uid(uid), reported), reported, 1)
                    .says("deployment a/web"),
                below(write_record(7, reported + 1, "update deployments.apps a/web"), turn + 3000),
            ]);
            cause = SpanId::of_write(Uid(7), reported + 1);
        }
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 24)).unwrap();
        keep.append_records(&records).unwrap();
        let found = find(&keep, &[], &Question { last: 9, ..web() }).unwrap();
        assert_eq!(found.groups.len(), 1);
        assert_eq!((found.groups[0].root.0, found.groups[0].records.len()), (100, records.len()));
        assert!(!found.truncated);
    }
}
