use proptest::prelude::*;

use super::*;
use crate::known::Known;
use crate::testing::{BEGIN, MS, record, write_record};
use crate::view::view;

fn known(stored: StoredRecord) -> Known {
    Known { stored, open: false }
}

fn assembled(records: Vec<StoredRecord>, root: u64) -> Tree {
    let group = Group { root: SpanId(root), records: records.into_iter().map(known).collect() };
    let found = Found { groups: vec![group], ..Found::default() };
    assemble(found, BEGIN + 1000 * MS).remove(0)
}

fn outline(tree: &Tree) -> Vec<(Stage, Option<Stage>)> {
    let parent = |span: &SpanNode| span.parent.map(|parent| tree.spans[parent].stage);
    tree.spans.iter().map(|span| (span.stage, parent(span))).collect()
}

#[test]
fn writes_have_two_names() {
    let request = record(Stage::Request, 1, SpanId::NONE, 0, 20).says("POST /x\nalice\nkubectl");
    let write =
        record(Stage::Write, 2, SpanId(1), 1, 5).about(7, 42).says("create deployments.apps default/web");
    let plugin = record(Stage::MutatingPlugin, 3, SpanId(2), 2, 1).about(7, 0).says("ServiceAccount");
    let queued = record(Stage::Queued, 4, SpanId::of_write(Uid(7), 42), 8, 1)
        .about(7, 42)
        .says("deployment-controller default/web");
    let tree = assembled(vec![queued, plugin, write, request], 1);
    let expected = [
        (Stage::Request, None),
        (Stage::Write, Some(Stage::Request)),
        (Stage::MutatingPlugin, Some(Stage::Write)),
        (Stage::Queued, Some(Stage::Write)),
    ];
    assert_eq!(outline(&tree), expected);
    assert_eq!(tree.spans[1].id, SpanId::of_write(Uid(7), 42));
    assert_eq!((tree.spans[0].name.as_str(), tree.spans[0].text.as_str()), ("POST /x", "alice\nkubectl"));
    assert_eq!((tree.spans[1].name.as_str(), tree.spans[1].object), ("create", Some(0)));
    assert_eq!(
        (tree.spans[3].name.as_str(), tree.spans[3].text.as_str()),
        ("deployment-controller", "default/web")
    );
    assert_eq!(tree.objects[0].key.text(), "deployments.apps/default/web");
}

#[test]
fn of_two_records_of_a_span_the_finished_one_counts() {
    let write = || write_record(7, 1, "create pods default/web");
    let turn = |duration, flags| {
        let mut turn = record(Stage::Reconcile, 5, SpanId::of_write(Uid(7), 1), 3, duration).about(7, 1);
        turn.record.flags = flags;
        turn
    };
    let tree = assembled(vec![write(), turn(9, Flags::UNFINISHED), turn(4, Flags::NONE), write()], 1);
    assert_eq!(tree.spans.len(), 2);
    assert_eq!(tree.spans[1].end, Some(BEGIN + 7 * MS));
    let tree = assembled(vec![write(), turn(4, Flags::UNFINISHED), turn(9, Flags::UNFINISHED)], 1);
    assert_eq!(tree.spans[1].end, Some(BEGIN + 12 * MS));
}

#[test]
fn the_start_of_a_pod_that_its_node_has_not_sent_is_open() {
    let write = write_record(7, 1, "bind pods default/web");
    let below = SpanId::of_stage(Uid(7), Stage::PodStart);
    let mut image = record(Stage::Image, 5, below, 3, 4).about(7, 1);
    image.node = "node1".into();
    let sandbox = record(Stage::Sandbox, 6, below, 4, 9).about(7, 1);
    let tree = assembled(vec![write, image, sandbox], 1);
    let expected = [
        (Stage::Write, None),
        (Stage::PodStart, Some(Stage::Write)),
        (Stage::Image, Some(Stage::PodStart)),
        (Stage::Sandbox, Some(Stage::PodStart)),
    ];
    assert_eq!(outline(&tree), expected);
    assert_eq!((tree.spans[1].id, tree.spans[1].end, tree.spans[1].object), (below, None, Some(0)));
}

#[test]
fn a_write_that_was_not_recorded_is_replaced_by_the_one_before_it() {
    let write = write_record(7, 3, "create pods default/web");
    let turn = record(Stage::Reconcile, 5, SpanId::of_write(Uid(7), 9), 8, 4).about(7, 9);
    let tree = assembled(vec![write, turn], 3);
    assert_eq!(tree.spans[1].parent, Some(0));
    assert!(tree.spans[1].flags.contains(Flags::INFERRED));
}

#[test]
fn restarts_and_losses_are_noted() {
    let mut turn = record(Stage::Reconcile, 5, SpanId::NONE, 0, 40);
    turn.record.flags = Flags::UNFINISHED;
    let mut lost = record(Stage::Lost, 8, SpanId::NONE, 7, 0);
    lost.record.revision = 12;
    let found = Found {
        groups: vec![Group { root: SpanId(5), records: vec![known(turn)] }],
        markers: vec![
            record(Stage::Restarted, 6, SpanId::NONE, 5, 1),
            record(Stage::Restarted, 7, SpanId::NONE, 500, 1),
            lost,
        ],
        truncated: true,
        ..Found::default()
    };
    let notes = &assemble(found, BEGIN + 1000 * MS)[0].notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(
        notes[0].starts_with("cut off by a restart of the server at 2025-11-16T10:00:00.006"),
        "{notes:?}"
    );
    assert!(notes[1].contains("12 records were lost"), "{notes:?}");
}

#[test]
fn ten_thousand_spans() {
    let mut records = vec![write_record(7, 1, "create deployments.apps default/web")];
    for pod in 0..500u64 {
        let uid = u128::from(pod) + 100;
        let write = record(Stage::Write, 1_000_000 + pod, SpanId::of_write(Uid(7), 1), 2, 3);
        records.push(write.about(uid, 1000 + pod).says(&format!("create pods default/web-{pod}")));
        let below = SpanId::of_stage(Uid(uid), Stage::PodStart);
        let mut start = record(Stage::PodStart, below.0, SpanId::of_write(Uid(uid), 1000 + pod), 6, 100)
            .about(uid, 1000 + pod);
        start.node = format!("node{}", pod % 10);
        records.push(start);
        for step in 0..18 {
            let span = 2_000_000 + pod * 20 + step;
            records.push(record(Stage::Volume, span, below, 7 + step, 3).about(uid, 1000 + pod).says("data"));
        }
    }
    let tree = assembled(records, 1);
    assert_eq!((tree.spans.len(), tree.objects.len()), (10_001, 501));
    assert_eq!(view(&tree, None).spans.len(), 10_001);
}

proptest! {
    /// Whatever ids clients and nodes make up, there is a tree.
    #[test]
    fn random_causes_make_a_tree(
        spans in prop::collection::vec((prop::sample::select(Stage::ALL), 1u64..30, 0u64..30, 0u128..6, 0u64..5, any::<u64>(), any::<u64>(), 0..4), 1..60),
        now: u64,
    ) {
        let mut records = Vec::new();
        for (stage, span, parent, uid, revision, start, duration, kind) in spans {
            let parent = match kind {
                0 => SpanId::of_write(Uid(uid), revision),
                1 => SpanId::of_stage(Uid(uid), Stage::PodStart),
                _ => SpanId(parent),
            };
            let mut stored = record(stage, span, parent, 0, 0).about(uid, revision).says("create pods default/web");
            (stored.start, stored.record.duration) = (start, duration);
            stored.uncertainty = (kind * 1000) as u32;
            stored.details = (kind == 3).then_some(coracle_trace::Details { marks: [start as u32; 16], owner: Uid(uid) });
            records.push(Known { stored, open: kind == 2 });
        }
        let root = records[0].stored.record.span;
        let found = Found { groups: vec![Group { root, records }], ..Found::default() };
        let trees = assemble(found, now);
        prop_assert_eq!(trees.len(), 1);
        let tree = &trees[0];
        prop_assert!(tree.spans.is_sorted_by_key(|span| span.start));
        prop_assert_eq!(tree.spans.iter().filter(|span| span.parent.is_none()).count(), 1);
        let mut reached = vec![tree.root];
        for index in 0..tree.spans.len() {
            let Some(span) = reached.get(index).copied() else { break };
            reached.extend(&tree.spans[span].children);
        }
        prop_assert_eq!(reached.len(), tree.spans.len());
        let _ = view(tree, None);
    }
}
