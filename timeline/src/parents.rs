//! Which span is the parent of which.

use std::collections::HashMap;

use coracle_trace::{Flags, Record, SpanId, Stage, Uid};

use crate::block::StoredRecord;
use crate::known::Known;
use crate::single_stage::single_stage;
use crate::tree::{SpanIx, SpanNode};

/// A span of a node whose end was not reported after this time is not going on.
const SILENT: u64 = 10 * 60 * 1_000_000_000;

/// The id of a stored write that everybody can compute.
pub(crate) fn alias(record: &Record) -> Option<SpanId> {
    let written = record.stage == Stage::Write && record.revision != 0 && !record.subject.is_none();
    written.then(|| SpanId::of_write(record.subject, record.revision))
}

/// The ids that a record is known by: its own, and of a stored write that of its revision.
pub(crate) fn ids(record: &Record) -> impl Iterator<Item = SpanId> + use<> {
    [Some(record.span), alias(record)].into_iter().flatten()
}

/// Whether a record may hang below another one. Nodes choose parents themselves: only records of the same node, and writes of the
/// object that it is about.
pub(crate) fn may_hang(record: &Record, node: &str, parent: &StoredRecord) -> bool {
    let is_about_it = parent.record.stage == Stage::Write && parent.record.subject == record.subject;
    node.is_empty() || node == parent.node || is_about_it && !record.subject.is_none()
}

/// Its parent is a span of a client, which may have any id.
pub(crate) fn is_remote(record: &Record) -> bool {
    record.flags.contains(Flags::REMOTE)
}

/// Which span an id means.
pub(crate) struct Ids {
    by_id: HashMap<SpanId, SpanIx>,
    /// The stored writes of each object, by revision.
    writes: HashMap<Uid, Vec<(u64, SpanIx)>>,
}

impl Ids {
    pub(crate) fn new(records: &[Known], nodes: &[SpanNode]) -> Self {
        let mut ids = Self { by_id: HashMap::new(), writes: HashMap::new() };
        // Those of nodes first: an id that a node made up does not hide one of the server.
        let of_nodes = records.iter().enumerate().filter(|(_, known)| !known.stored.node.is_empty());
        let of_server = records.iter().enumerate().filter(|(_, known)| known.stored.node.is_empty());
        for (index, known) in of_nodes.chain(of_server) {
            ids.by_id.insert(known.stored.record.span, index);
            if alias(&known.stored.record).is_some() {
                ids.by_id.insert(nodes[index].id, index);
                let record = &known.stored.record;
                ids.writes.entry(record.subject).or_default().push((record.revision, index));
            }
        }
        ids.writes.values_mut().for_each(|writes| writes.sort_unstable());
        ids
    }

    /// The span, or if it was not recorded, the newest write of the object up to the revision.
    fn find(&self, id: SpanId, uid: Uid, revision: u64) -> Option<(SpanIx, bool)> {
        if let Some(span) = self.by_id.get(&id) {
            return Some((*span, true));
        }
        let writes = self.writes.get(&uid).filter(|_| SpanId::of_write(uid, revision) == id)?;
        let before = writes.partition_point(|(known, _)| *known <= revision);
        before.checked_sub(1).map(|newest| (writes[newest].1, false))
    }

    /// The write that starts or ends a pod: the newest one up to a revision. An agent that was restarted knows the pod by a later
    /// revision only, such as that of its own report, which is below the start.
    fn cause(&self, stage: Stage, (uid, revision): (Uid, u64), nodes: &[SpanNode]) -> Option<SpanIx> {
        let verbs: &[&str] = match stage {
            Stage::PodStart => &["create", "bind"],
            Stage::Terminate => &["delete"],
            _ => return None,
        };
        let writes = self.writes.get(&uid)?.iter().rev().filter(|(known, _)| *known <= revision);
        writes.map(|(_, span)| *span).find(|span| verbs.contains(&nodes[*span].name.as_str()))
    }
}

/// Adds the start and the end of pods whose own record the node has not sent yet, while there are spans below it.
pub(crate) fn add_missing_stages(records: &[Known], nodes: &mut Vec<SpanNode>, ids: &mut Ids, now: u64) {
    for known in records {
        let record = &known.stored.record;
        let Some(stage) = single_stage(record) else { continue };
        let end = known.stored.end();
        if let Some(span) = ids.by_id.get(&record.parent).copied() {
            if span >= records.len() {
                nodes[span].end = nodes[span].end.max(Some(end));
            }
            continue;
        }
        let about = (record.subject, record.revision);
        let newest =
            || ids.find(SpanId::of_write(about.0, about.1), about.0, about.1).map(|(parent, _)| parent);
        let parent = ids.cause(stage, about, nodes).or_else(newest);
        ids.by_id.insert(record.parent, nodes.len());
        let child = &known.stored;
        nodes.push(SpanNode {
            id: record.parent,
            parent,
            children: Vec::new(),
            stage,
            name: String::new(),
            text: String::new(),
            object: None,
            revision: record.revision,
            node: child.node.clone(),
            start: child.start,
            end: Some(end),
            uncertainty: u64::from(child.uncertainty),
            code: 0,
            flags: Flags::NONE,
        });
    }
    for span in records.len()..nodes.len() {
        nodes[span].object = nodes[span].parent.and_then(|parent| nodes[parent].object);
        if nodes[span].end.is_some_and(|end| end.saturating_add(SILENT) >= now) {
            nodes[span].end = None;
        } else {
            nodes[span].flags.insert(Flags::UNFINISHED);
        }
    }
}

pub(crate) fn resolve_parents(records: &[Known], nodes: &mut [SpanNode], ids: &Ids, root: SpanIx) {
    for (index, known) in records.iter().enumerate() {
        let record = &known.stored.record;
        let cause = ids.cause(record.stage, (record.subject, record.revision), nodes);
        let found = cause
            .map(|cause| (cause, true))
            .or_else(|| ids.find(record.parent, record.subject, record.revision))
            .filter(|(parent, _)| *parent != index);
        let (parent, exact) = found.unwrap_or((root, false));
        nodes[index].parent = Some(parent);
        if !exact {
            nodes[index].flags.insert(Flags::INFERRED);
        }
    }
    nodes[root].parent = None;
    nodes[root].flags = records[root].stored.record.flags;
    for node in nodes[records.len()..].iter_mut() {
        node.parent = node.parent.or(Some(root));
    }
    break_cycles(nodes, root);
}

/// Ids that clients made up could form a cycle: its spans hang below the root then.
fn break_cycles(nodes: &mut [SpanNode], root: SpanIx) {
    let mut reaches_root = vec![false; nodes.len()];
    let mut on_path = vec![false; nodes.len()];
    reaches_root[root] = true;
    for begin in 0..nodes.len() {
        let mut path = Vec::new();
        let mut at = begin;
        while !reaches_root[at] && !on_path[at] {
            on_path[at] = true;
            path.push(at);
            at = nodes[at].parent.unwrap_or(root);
        }
        if !reaches_root[at] {
            nodes[at].parent = Some(root);
        }
        for span in path {
            reaches_root[span] = true;
            on_path[span] = false;
        }
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

    fn on_node(mut stored: StoredRecord, revision: u64) -> StoredRecord {
        stored.node = "n1".into();
        stored.about(8, revision)
    }

    fn start(at: u64, duration: u64, revision: u64) -> StoredRecord {
        let id = SpanId::of_stage(Uid(8), Stage::PodStart);
        let parent = SpanId::of_write(Uid(8), revision);
        on_node(record(Stage::PodStart, id.0, parent, at, duration), revision)
    }

    /// A pod whose agent is killed after its first report, and goes on with what the next one finds: the pod with that report.
    fn killed(first_is_known: bool, last_is_known: bool) -> Tree {
        let start_id = SpanId::of_stage(Uid(8), Stage::PodStart);
        let below = |mut stored: StoredRecord, parent: u64| {
            stored.record.parent = SpanId(parent);
            stored
        };
        let step = |stage, span, at, revision| on_node(record(stage, span, start_id, at, 2), revision);
        let mut records = vec![
            record(Stage::Request, 100, SpanId::NONE, 9, 5).says("POST /pods\nadmin\nkubectl"),
            below(write_record(8, 11, "create pods a/web"), 100),
            below(write_record(8, 12, "bind pods a/web"), 11),
            step(Stage::Sandbox, 2, 14, 12),
            step(Stage::StatusReport, 3, 17, 12),
            below(record(Stage::Request, 4, SpanId(3), 17, 2).says("PATCH /pods\nsystem:node:n1\nx"), 3),
            below(write_record(8, 18, "patch pods a/web"), 4),
            step(Stage::Container, 5, 40, 18),
            step(Stage::Ready, 6, 45, 18),
        ];
        if first_is_known {
            let mut first = start(13, 6, 12);
            first.record.flags.insert(Flags::UNFINISHED);
            records.push(first);
        }
        if last_is_known {
            records.push(start(38, 9, 18));
        }
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        keep.append_records(&records).unwrap();
        let found =
            find(&keep, &[], &Question { uid: Some(Uid(8)), last: 9, ..Question::default() }).unwrap();
        let mut trees = assemble(found, BEGIN + 50 * MS);
        assert_eq!(trees.len(), 1);
        trees.remove(0)
    }

    #[test]
    fn a_pod_whose_agent_was_killed_hangs_below_what_bound_it() {
        for (first, last) in [(true, true), (false, true), (true, false), (false, false)] {
            let tree = killed(first, last);
            let starts: Vec<&SpanNode> =
                tree.spans.iter().filter(|span| span.stage == Stage::PodStart).collect();
            let [start] = starts.as_slice() else { panic!("{first} {last}: told {} times", starts.len()) };
            let cause = &tree.spans[start.parent.unwrap()];
            assert_eq!((cause.stage, cause.name.as_str()), (Stage::Write, "bind"), "{first} {last}");
            assert!(!start.flags.contains(Flags::INFERRED), "{first} {last}");
            let below: Vec<Stage> = start.children.iter().map(|child| tree.spans[*child].stage).collect();
            let steps = [Stage::Sandbox, Stage::StatusReport, Stage::Container, Stage::Ready];
            assert_eq!(below, steps, "{first} {last}");
            if last {
                let (from, to) = (start.start - BEGIN, start.end.unwrap() - BEGIN);
                assert_eq!((from / MS, to / MS), (if first { 13 } else { 38 }, 47), "{first} {last}");
            }
        }
    }
}
