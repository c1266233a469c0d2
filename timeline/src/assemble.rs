//! Makes trees of records.

use std::collections::HashMap;

use coracle_trace::{Flags, SpanId, Stage, TraceId, Uid};

use crate::block::StoredRecord;
use crate::clock;
use crate::filter::batch_revisions;
use crate::known::Known;
use crate::marks::{Marked, expand};
use crate::parents::{Ids, add_missing_stages, alias, resolve_parents};
use crate::search::{Found, Group, once};
use crate::timestamp::format_timestamp;
use crate::tree::{ObjectKey, SpanNode, TracedObject, Tree, children_of, sort};

/// Notes about restarts and losses.
const MOST_NOTES: usize = 16;
/// A loss is noticed up to this time after it, in nanoseconds.
const NOTICED: u64 = 2_000_000_000;

/// Makes a tree of each group: resolves parents, drops duplicates, cuts requests and writes by their marks. `now` is the time of the
/// answer in nanoseconds of unix time.
pub fn assemble(found: Found, now: u64) -> Vec<Tree> {
    let Found { groups, mut batches, markers, truncated, behind, several, missing } = found;
    batches.sort_by_key(|batch| batch.record.revision);
    let trees = groups.into_iter().filter_map(|group| assemble_group(group, &batches, now));
    let note = |mut tree: Tree| {
        add_notes(&mut tree, &markers, several);
        if truncated {
            tree.notes.push("there are more spans than are shown".into());
        }
        if behind {
            tree.notes.push("the newest spans are missing: the server has not written them yet".into());
        }
        tree.notes.extend_from_slice(&missing);
        tree
    };
    trees.map(note).collect()
}

fn assemble_group(group: Group, batches: &[StoredRecord], now: u64) -> Option<Tree> {
    let records = once(group.records);
    let root = records.iter().position(|known| known.stored.record.span == group.root)?;
    let (objects, by_uid) = objects(&records);
    let mut nodes: Vec<SpanNode> = records.iter().map(|known| span_node(known, &by_uid)).collect();
    let mut ids = Ids::new(&records, &nodes);
    add_missing_stages(&records, &mut nodes, &mut ids, now);
    resolve_parents(&records, &mut nodes, &ids, root);
    let children = children_of(&nodes);
    for (span, known) in records.iter().enumerate() {
        if let Some(details) = &known.stored.details {
            let batch = batch_of(&known.stored, batches);
            let marked = Marked { span, id: known.stored.record.span, details };
            expand(&mut nodes, &marked, batch, &children[span]);
        }
    }
    include_handshakes(&mut nodes);
    clock::align(&mut nodes);
    let record = &records[root].stored.record;
    let remote = if record.flags.contains(Flags::REMOTE) { record.parent } else { SpanId::NONE };
    let (spans, root) = sort(nodes, root);
    let trace = trace_of(record.trace, &records);
    Some(Tree { root, spans, objects, notes: Vec::new(), trace, remote, now })
}

/// The objects that were written, in the order of their first write, and their numbers.
fn objects(records: &[Known]) -> (Vec<TracedObject>, HashMap<Uid, usize>) {
    let mut objects: Vec<TracedObject> = Vec::new();
    let mut by_uid: HashMap<Uid, usize> = HashMap::new();
    let writes = records.iter().filter(|known| known.stored.record.stage == Stage::Write);
    for known in writes {
        let (uid, owner) = (known.stored.record.subject, known.stored.details.map(|details| details.owner));
        let Some((_, key)) = ObjectKey::of_write(&known.stored.text) else { continue };
        let index = *by_uid.entry(identity(&known.stored)).or_insert(objects.len());
        if index == objects.len() {
            objects.push(TracedObject { key, uid, ..TracedObject::default() });
        }
        if let Some(owner) = owner.filter(|owner| !owner.is_none()) {
            objects[index].owner = owner;
        }
    }
    for known in records {
        let node = &known.stored.node;
        let runs = matches!(
            known.stored.record.stage,
            Stage::PodStart | Stage::Seen | Stage::Terminate | Stage::Sandbox
        );
        if let Some(index) = by_uid.get(&known.stored.record.subject).filter(|_| runs && !node.is_empty()) {
            objects[*index].node.clone_from(node);
        }
    }
    (objects, by_uid)
}

/// What tells the objects of writes apart: the uid, or if a refused write made none, the name.
fn identity(stored: &StoredRecord) -> Uid {
    let uid = stored.record.subject;
    if !uid.is_none() || stored.record.stage != Stage::Write {
        return uid;
    }
    ObjectKey::of_write(&stored.text).map_or(uid, |(_, key)| Uid::of(&key.text()))
}

fn span_node(known: &Known, by_uid: &HashMap<Uid, usize>) -> SpanNode {
    let Known { stored, open } = known;
    let record = &stored.record;
    let (name, text) = name_and_text(record.stage, &stored.text);
    let is_about =
        record.stage != Stage::Request && (record.stage == Stage::Write || !record.subject.is_none());
    SpanNode {
        id: alias(record).unwrap_or(record.span),
        parent: None,
        children: Vec::new(),
        stage: record.stage,
        name: name.to_owned(),
        text: text.to_owned(),
        object: by_uid.get(&identity(stored)).copied().filter(|_| is_about),
        revision: record.revision,
        node: stored.node.clone(),
        start: stored.start,
        end: (!open).then(|| stored.end()),
        uncertainty: u64::from(stored.uncertainty),
        code: record.code,
        flags: record.flags,
    }
}

/// Splits the text of a record as its stage writes it.
pub(crate) fn name_and_text(stage: Stage, text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match stage {
        Stage::Write => (first.split(' ').next().unwrap_or_default(), rest),
        Stage::Reconcile | Stage::Queued => first.split_once(' ').unwrap_or((first, "")),
        _ => (first, rest),
    }
}

fn batch_of<'a>(stored: &StoredRecord, batches: &'a [StoredRecord]) -> Option<&'a StoredRecord> {
    let revision = stored.record.revision;
    if stored.record.stage != Stage::Write || revision == 0 {
        return None;
    }
    let batch = &batches[batches.partition_point(|batch| batch.record.revision < revision)..].first()?;
    (batch_revisions(&batch.record).0 <= revision).then_some(batch)
}

/// The first request of a connection begins with the connection, but not before what caused it: clients connect ahead.
fn include_handshakes(nodes: &mut [SpanNode]) {
    let mut handshakes: HashMap<usize, Vec<usize>> = HashMap::new();
    for (span, node) in nodes.iter().enumerate() {
        let request = node.parent.filter(|request| nodes[*request].stage == Stage::Request);
        if let (Stage::Accept | Stage::Tls, Some(request)) = (node.stage, request) {
            handshakes.entry(request).or_default().push(span);
        }
    }
    for (request, parts) in handshakes {
        let own = nodes[request].start;
        let cause = nodes[request].parent.map_or(0, |cause| nodes[cause].start).min(own);
        let connected = parts.iter().filter_map(|part| nodes[*part].end).max().unwrap_or_default();
        let earliest = if connected > cause { cause } else { own };
        for part in parts {
            let start = nodes[part].start.max(earliest);
            nodes[part].start = start;
            nodes[part].end = nodes[part].end.map(|end| end.max(start));
            nodes[request].start = nodes[request].start.min(start);
        }
    }
}

fn trace_of(root: TraceId, records: &[Known]) -> TraceId {
    let mut traces = records.iter().map(|known| known.stored.record.trace);
    if root.is_none() { traces.find(|trace| !trace.is_none()).unwrap_or_default() } else { root }
}

/// Markers do not say which server they are of.
fn add_notes(tree: &mut Tree, markers: &[StoredRecord], several: bool) {
    let server = if several { "a server" } else { "the server" };
    let (begin, end) = (tree.spans[tree.root].start, tree.last_end());
    let is_cut = tree.spans.iter().any(|span| span.flags.contains(Flags::UNFINISHED));
    let of_tree = |marker: &&StoredRecord| {
        let is_here = marker.node.is_empty() || tree.spans.iter().any(|span| span.node == marker.node);
        let noticed = if marker.record.stage == Stage::Lost { NOTICED } else { 0 };
        is_here && marker.end() >= begin && marker.start <= end.saturating_add(noticed)
    };
    let markers: Vec<&StoredRecord> = markers.iter().filter(of_tree).take(MOST_NOTES).collect();
    for marker in markers {
        let place = if marker.node.is_empty() { server } else { marker.node.as_str() };
        let at = format_timestamp(marker.end());
        let note = match marker.record.stage {
            Stage::Lost => format!("{place}: {} records were lost at {at}", marker.record.revision),
            _ if is_cut => format!("cut off by a restart of {place} at {at}"),
            _ => format!("{place} was restarted at {at}"),
        };
        tree.notes.push(note);
    }
    tree.notes.dedup();
}

#[cfg(test)]
mod tests;
