//! Marks of requests and writes, and batches of the store, as spans.

use coracle_trace::{Details, Flags, Part, Record, SpanId, Stage};

use crate::block::StoredRecord;
use crate::tree::{SpanIx, SpanNode};

/// What ends with each mark of a request.
const REQUEST: [Stage; 8] = [
    Stage::Authn,
    Stage::Filters,
    Stage::FlowQueue,
    Stage::Authz,
    Stage::Body,
    Stage::Decode,
    Stage::Handle,
    Stage::Respond,
];
/// What ends with each mark of a write.
const WRITE: [Stage; 8] = [
    Stage::Prepare,
    Stage::Mutating,
    Stage::Defaults,
    Stage::Validation,
    Stage::Validating,
    Stage::Encode,
    Stage::Store,
    Stage::ReadBack,
];
/// What ends with the marks of a batch of the store, and with the batch.
const BATCH: [Stage; 3] = [Stage::StoreCommit, Stage::StoreSync, Stage::Publish];
/// Marks of a record end here; the spans of a batch are numbered after them.
const BATCH_MARK: u8 = 16;

/// A span with marks.
pub(crate) struct Marked<'a> {
    pub(crate) span: SpanIx,
    /// The id that the record had before its write was stored.
    pub(crate) id: SpanId,
    pub(crate) details: &'a Details,
}

/// The stages that end with the marks of a stage.
fn stages_of(stage: Stage) -> Option<&'static [Stage; 8]> {
    match stage {
        Stage::Request => Some(&REQUEST),
        Stage::Write => Some(&WRITE),
        _ => None,
    }
}

/// The marks of a record that were reached, in order of time: offset in nanoseconds and number.
fn reached(details: &Details, count: usize) -> impl Iterator<Item = (u64, usize)> {
    let offset = |mark: usize| details.mark(mark).filter(|_| mark < count).unwrap_or(u64::MAX);
    let mut marks: [(u64, usize); Details::MARKS] = std::array::from_fn(|mark| (offset(mark), mark));
    marks.sort_unstable();
    marks.into_iter().take_while(|(offset, _)| *offset != u64::MAX)
}

/// Calls `each` with the stages of a record that are marks, and how long they took. Not with the handling of a request: it is only
/// known later whether a write below it is the same.
pub(crate) fn each_mark(record: &Record, details: &Details, each: &mut dyn FnMut(Stage, u64)) {
    if record.stage == Stage::StoreBatch {
        let mut begin = 0;
        let ends = [details.mark(0), details.mark(1), Some(record.duration)];
        for (stage, end) in BATCH.into_iter().zip(ends).filter_map(|(stage, end)| Some((stage, end?))) {
            each(stage, end.saturating_sub(begin));
            begin = end.max(begin);
        }
        return;
    }
    let Some(stages) = stages_of(record.stage) else { return };
    let mut begin = 0;
    for (end, mark) in reached(details, stages.len()) {
        if stages[mark] != Stage::Handle {
            each(stages[mark], end - begin);
        }
        begin = end;
    }
}

/// Adds a span for each mark; children that ran meanwhile become its children.
pub(crate) fn expand(
    nodes: &mut Vec<SpanNode>,
    marked: &Marked<'_>,
    batch: Option<&StoredRecord>,
    children: &[SpanIx],
) {
    let parent = nodes[marked.span].clone();
    let Some(stages) = stages_of(parent.stage) else { return };
    let is_explained = children.iter().any(|child| nodes[*child].stage.explains_request());
    let mut begin = parent.start;
    let first = nodes.len();
    for (offset, mark) in reached(marked.details, stages.len()) {
        let end = parent.start.saturating_add(offset).min(parent.end.unwrap_or(u64::MAX)).max(begin);
        // What a request was about is the write below it.
        if stages[mark] != Stage::Handle || !is_explained {
            let id = marked.id.of_mark(mark as u8);
            nodes.push(part_of(&parent, marked.span, id, stages[mark], (begin, end)));
        }
        if stages[mark] == Stage::Store
            && let Some(batch) = batch
        {
            cut_store(nodes, marked.id, batch);
        }
        begin = end;
    }
    for child in children {
        move_below_mark(nodes, *child, first, marked.span);
    }
}

fn part_of(parent: &SpanNode, index: SpanIx, id: SpanId, stage: Stage, (start, end): (u64, u64)) -> SpanNode {
    SpanNode {
        id,
        parent: Some(index),
        children: Vec::new(),
        stage,
        name: String::new(),
        text: String::new(),
        start,
        end: Some(end),
        code: 0,
        flags: Flags(0),
        ..parent.clone()
    }
}

/// The last span is the time in the store: cuts it by the times of the batch that the write was in.
fn cut_store(nodes: &mut Vec<SpanNode>, id: SpanId, batch: &StoredRecord) {
    let index = nodes.len() - 1;
    let store = nodes[index].clone();
    let store_end = store.end.unwrap_or(store.start);
    let within = |time: u64| time.clamp(store.start, store_end);
    let mark = |mark| batch.details.and_then(|details: Details| details.mark(mark));
    let staged = mark(0).map_or(batch.end(), |offset| batch.start.saturating_add(offset));
    let synced = mark(1).map_or(staged, |offset| batch.start.saturating_add(offset));
    let mut begin = store.start;
    for (number, (stage, end)) in [
        (Stage::StoreQueue, batch.start),
        (Stage::StoreCommit, staged),
        (Stage::StoreSync, synced),
        (Stage::Publish, batch.end()),
    ]
    .into_iter()
    .enumerate()
    {
        let end = within(end).max(begin);
        if end > begin || stage == Stage::Publish {
            let id = id.of_mark(BATCH_MARK + number as u8);
            nodes.push(part_of(&store, index, id, stage, (begin, end)));
        }
        begin = end;
    }
}

/// Plugins and webhooks ran during a phase of admission, the transaction of etcd during the time in the store.
fn move_below_mark(nodes: &mut [SpanNode], child: SpanIx, first_mark: SpanIx, marked: SpanIx) {
    let node = &nodes[child];
    let is_nested = node.stage == Stage::Write
        && nodes[marked].stage == Stage::Write
        && !node.flags.contains(Flags::INFERRED);
    let is_part =
        node.stage.part() == Part::Write && node.stage != Stage::Write && node.stage != Stage::Delivered;
    if !is_nested && !is_part {
        return;
    }
    let middle = node.start.midpoint(node.end.unwrap_or(node.start));
    let holds =
        |mark: &SpanNode| mark.parent == Some(marked) && mark.start <= middle && Some(middle) <= mark.end;
    if let Some(mark) = (first_mark..nodes.len()).find(|mark| holds(&nodes[*mark])) {
        nodes[child].parent = Some(mark);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{BEGIN, MS, node, record};

    fn stages(nodes: &[SpanNode]) -> Vec<(Stage, u64, u64)> {
        let ms = |time: u64| (time - BEGIN) / MS;
        nodes.iter().map(|node| (node.stage, ms(node.start), ms(node.end.unwrap()))).collect()
    }

    fn details(marks: &[(usize, u64)]) -> Details {
        let mut details = Details::NONE;
        marks.iter().for_each(|(mark, ms)| details.marks[*mark] = Details::units(ms * MS));
        details
    }

    #[test]
    fn marks_of_a_write_and_its_batch_are_spans() {
        let mut nodes = vec![node(Stage::Write, None, 0, 20), node(Stage::MutatingWebhook, Some(0), 2, 4)];
        let details = details(&[(1, 5), (3, 6), (6, 15), (7, 18)]);
        let mut batch = record(Stage::StoreBatch, 9, SpanId::NONE, 8, 6);
        batch.details = Some(self::details(&[(0, 1), (1, 5)]));
        let marked = Marked { span: 0, id: SpanId(1), details: &details };
        expand(&mut nodes, &marked, Some(&batch), &[1]);
        assert_eq!(
            stages(&nodes[2..]),
            [
                (Stage::Mutating, 0, 5),
                (Stage::Validation, 5, 6),
                (Stage::Store, 6, 15),
                (Stage::StoreQueue, 6, 8),
                (Stage::StoreCommit, 8, 9),
                (Stage::StoreSync, 9, 13),
                (Stage::Publish, 13, 14),
                (Stage::ReadBack, 15, 18),
            ]
        );
        assert_eq!(nodes[1].parent, Some(2));
        assert_eq!(nodes[5].parent, Some(4));
    }

    #[test]
    fn a_request_with_a_write_has_no_span_for_handling_it() {
        let details = details(&[(0, 1), (5, 3), (6, 9), (7, 10)]);
        let marked = Marked { span: 0, id: SpanId(1), details: &details };
        let mut with_write = vec![node(Stage::Request, None, 0, 11), node(Stage::Write, Some(0), 3, 8)];
        expand(&mut with_write, &marked, None, &[1]);
        assert_eq!(
            stages(&with_write[2..]),
            [(Stage::Authn, 0, 1), (Stage::Decode, 1, 3), (Stage::Respond, 9, 10)]
        );
        assert_eq!(with_write[1].parent, Some(0));
        let mut without = vec![node(Stage::Request, None, 0, 11)];
        expand(&mut without, &marked, None, &[]);
        assert_eq!(stages(&without[1..])[2], (Stage::Handle, 3, 9));
    }

    #[test]
    fn marks_have_times_of_their_own() {
        let times = |stage, marks: &[(usize, u64)]| {
            let (record, mut times) = (record(stage, 9, SpanId::NONE, 0, 20).record, Vec::new());
            each_mark(&record, &details(marks), &mut |stage, nanos| times.push((stage, nanos / MS)));
            times
        };
        assert_eq!(
            times(Stage::Request, &[(0, 1), (5, 3), (6, 9), (7, 10)]),
            [(Stage::Authn, 1), (Stage::Decode, 2), (Stage::Respond, 1)]
        );
        assert_eq!(
            times(Stage::Write, &[(1, 5), (6, 15), (7, 18)]),
            [(Stage::Mutating, 5), (Stage::Store, 10), (Stage::ReadBack, 3)]
        );
        let batch = [(Stage::StoreCommit, 1), (Stage::StoreSync, 4), (Stage::Publish, 15)];
        assert_eq!(times(Stage::StoreBatch, &[(0, 1), (1, 5)]), batch);
        assert!(times(Stage::Image, &[(0, 1)]).is_empty());
    }

    #[test]
    fn marks_after_the_end_are_cut() {
        let details = details(&[(1, 50)]);
        let mut nodes = vec![node(Stage::Write, None, 0, 20)];
        expand(&mut nodes, &Marked { span: 0, id: SpanId(1), details: &details }, None, &[]);
        assert_eq!(stages(&nodes[1..]), [(Stage::Mutating, 0, 20)]);
    }
}
