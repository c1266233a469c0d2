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
        let parent =
            ids.find(SpanId::of_write(record.subject, record.revision), record.subject, record.revision);
        ids.by_id.insert(record.parent, nodes.len());
        let child = &known.stored;
        nodes.push(SpanNode {
            id: record.parent,
            parent: parent.map(|(parent, _)| parent),
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
        let found =
            ids.find(record.parent, record.subject, record.revision).filter(|(parent, _)| *parent != index);
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
