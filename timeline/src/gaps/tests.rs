use super::*;
use crate::coverage::coverage;
use crate::critical::{critical_path, end_of};
use crate::standing::Cause;
use crate::testing::{BEGIN, MS, node, tree};
use crate::tree::TracedObject;

fn named(stage: Stage, parent: usize, start: u64, end: u64, name: &str) -> SpanNode {
    SpanNode { name: name.into(), ..node(stage, Some(parent), start, end) }
}

fn path(tree: &Tree) -> Vec<(String, u64)> {
    let mut path = critical_path(tree, end_of(tree, None));
    name_gaps(&mut path, tree);
    path.iter().map(|piece| (piece.name.clone(), (piece.end - piece.start) / MS)).collect()
}

fn expect(pieces: &[(&str, u64)]) -> Vec<(String, u64)> {
    pieces.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect()
}

#[test]
fn from_a_request_to_a_turn() {
    let tree = tree(vec![
        node(Stage::Request, None, 0, 20),
        named(Stage::Write, 0, 2, 18, "create"),
        node(Stage::Store, Some(1), 3, 10),
        node(Stage::Publish, Some(2), 8, 9),
        named(Stage::Queued, 1, 11, 15, "deployment-controller"),
        named(Stage::Reconcile, 1, 16, 30, "deployment-controller"),
        named(Stage::Write, 5, 20, 28, "create"),
    ]);
    let expected = expect(&[
        ("request", 2),
        ("create object", 1),
        ("store", 5),
        ("publish", 1),
        ("watch cache", 2),
        ("work queue deployment-controller", 4),
        ("work queue of deployment-controller", 1),
        ("deployment-controller", 4),
        ("create object", 8),
        ("deployment-controller", 2),
    ]);
    assert_eq!(path(&tree), expected);
}

#[test]
fn a_pod_on_a_node() {
    let on = |stage, parent, start, end| SpanNode {
        node: "node1".into(),
        ..node(stage, Some(parent), start, end)
    };
    let tree = tree(
        vec![
            named(Stage::Write, 0, 0, 10, "bind"),
            named(Stage::Delivered, 0, 12, 12, "system:node:node1"),
            on(Stage::Seen, 0, 15, 16),
            on(Stage::PodStart, 0, 18, 60),
            on(Stage::Sandbox, 3, 20, 40),
            on(Stage::Container, 3, 44, 50),
            on(Stage::Ready, 3, 60, 60),
        ]
        .into_iter()
        .enumerate()
        .map(|(index, mut span)| {
            span.parent = span.parent.filter(|_| index > 0);
            span
        })
        .collect(),
    );
    let expected = expect(&[
        ("bind object", 10),
        ("watch cache", 2),
        ("watch delivery to node1", 3),
        ("seen", 1),
        ("hand-over to pod start", 2),
        ("hand-over to sandbox", 2),
        ("sandbox", 20),
        ("hand-over to container", 4),
        ("container", 6),
        ("not recorded", 10),
    ]);
    assert_eq!(path(&tree), expected);
    let mut pieces = critical_path(&tree, end_of(&tree, None));
    name_gaps(&mut pieces, &tree);
    assert!((coverage(&pieces) - 50.0 / 60.0).abs() < 1e-9, "nobody knows what took 10 ms");
    assert_eq!(pieces[0].start, BEGIN);
}

#[test]
fn turns_that_failed_are_on_the_path() {
    let turn = |stage, start, end, flags| SpanNode { flags, ..named(stage, 0, start, end, "hpa") };
    let tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        turn(Stage::Queued, 1, 2, Flags::NONE),
        turn(Stage::Reconcile, 2, 10, Flags::FAILED),
        turn(Stage::Queued, 10, 1010, Flags::RETRIED),
        turn(Stage::Reconcile, 1010, 1020, Flags::NONE),
        turn(Stage::Queued, 1015, 3015, Flags::TIMER),
        turn(Stage::Reconcile, 3015, 3020, Flags::NONE),
    ]);
    let expected = expect(&[
        (" object", 1),
        ("work queue hpa", 1),
        ("hpa", 8),
        ("waited 1.0 s to try again after an error", 1000),
        ("hpa", 5),
        ("waited 2.0 s for a timer of hpa", 2000),
        ("hpa", 5),
    ]);
    assert_eq!(path(&tree), expected);
}

#[test]
fn waits_say_what_for() {
    let mut tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        SpanNode {
            text: "0/3 nodes are available".into(),
            end: None,
            ..node(Stage::Unschedulable, Some(0), 1, 1)
        },
    ]);
    tree.now = BEGIN + 5001 * MS;
    let expected = expect(&[(" object", 1), ("waited 5.0 s for a node: 0/3 nodes are available", 5000)]);
    assert_eq!(path(&tree), expected);
}

#[test]
fn a_failed_pull_is_tried_again() {
    let mut tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        SpanNode { end: None, ..node(Stage::PodStart, Some(0), 1, 1) },
        SpanNode { flags: Flags::FAILED, ..named(Stage::Image, 1, 1, 301, "nginx:none") },
        node(Stage::StatusReport, Some(1), 301, 302),
    ]);
    tree.now = BEGIN + 15_302 * MS;
    let expected = expect(&[
        (" object", 1),
        ("image nginx:none", 300),
        ("status report", 1),
        ("image pull back-off nginx:none", 15_000),
    ]);
    assert_eq!(path(&tree), expected);
}

#[test]
fn a_pod_that_is_removed_is_not_started_again() {
    let mut tree = tree(vec![
        SpanNode { name: "delete".into(), ..node(Stage::Write, None, 0, 1) },
        SpanNode { end: None, ..node(Stage::Terminate, Some(0), 1, 1) },
        named(Stage::Exit, 1, 20, 20, "nginx"),
    ]);
    tree.now = BEGIN + 15_000 * MS;
    let names: Vec<String> = path(&tree).into_iter().map(|(name, _)| name).collect();
    assert!(!names.iter().any(|name| name.starts_with("crash back-off")), "{names:?}");
}

#[test]
fn a_probe_that_fails_is_waited_for() {
    let mut tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        SpanNode { end: None, object: Some(0), ..node(Stage::PodStart, Some(0), 1, 1) },
        named(Stage::Container, 1, 1, 301, "web"),
        node(Stage::StatusReport, Some(1), 301, 302),
    ]);
    tree.now = BEGIN + 15_302 * MS;
    let mut pod = TracedObject::default();
    let what = "the readiness probe of container web".to_owned();
    pod.standing = Standing::Waits(Cause { what, stuck: false });
    tree.objects = vec![pod];
    let expected = ("waits for the readiness probe of container web".to_owned(), 15_000);
    assert_eq!(path(&tree).pop(), Some(expected));
}

#[test]
fn a_pod_that_ends_is_waited_for() {
    let mut tree = tree(vec![
        SpanNode { name: "delete".into(), ..node(Stage::Write, None, 0, 1) },
        SpanNode { end: None, object: Some(0), ..node(Stage::Terminate, Some(0), 1, 1) },
        node(Stage::StatusReport, Some(1), 1, 20),
    ]);
    tree.now = BEGIN + 6_020 * MS;
    let standing = Standing::Ends(Cause { what: "node-3".to_owned(), stuck: false });
    tree.objects = vec![TracedObject { standing, ..TracedObject::default() }];
    assert_eq!(path(&tree).pop(), Some(("being deleted, waits for node-3".to_owned(), 6_000)));
}

#[test]
fn a_report_has_two_ways_and_an_answer_that_is_made() {
    let tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        node(Stage::PodStart, Some(0), 1, 30),
        node(Stage::StatusReport, Some(1), 1, 21),
        named(Stage::Request, 2, 6, 16, "PATCH"),
        node(Stage::Decode, Some(3), 6, 7),
        named(Stage::Write, 3, 7, 12, "patch"),
        node(Stage::Respond, Some(3), 13, 15),
    ]);
    let mut pieces = critical_path(&tree, 2);
    name_gaps(&mut pieces, &tree);
    let said: Vec<_> =
        pieces.iter().map(|piece| (piece.name.as_str(), (piece.end - piece.start) / MS)).collect();
    let expected = [
        (" object", 1),
        ("on the way to the server", 5),
        ("decode", 1),
        ("patch object", 5),
        ("PATCH", 1),
        ("respond", 2),
        ("PATCH", 1),
        ("answer", 5),
    ];
    assert_eq!(said, expected);
    assert!((coverage(&pieces) - 1.0).abs() < 1e-9);
    assert!(pieces.is_sorted_by(|before, next| before.end == next.start), "they follow one another");
}

#[test]
fn a_node_that_was_away_saw_it_late() {
    for (seen, name) in [(40, "watch delivery to n3"), (334_000, "n3 was away")] {
        let at = |span: SpanNode| SpanNode { node: "n3".into(), ..span };
        let tree = tree(vec![
            SpanNode { name: "delete".into(), ..node(Stage::Write, None, 0, 1) },
            at(node(Stage::Seen, Some(0), seen, seen + 1)),
            at(node(Stage::Terminate, Some(0), seen + 1, seen + 9)),
        ]);
        assert_eq!(path(&tree)[1], (name.to_owned(), seen - 1));
    }
}

#[test]
fn a_container_waits_for_its_sandbox() {
    let tree = tree(vec![
        node(Stage::Write, None, 0, 1),
        node(Stage::PodStart, Some(0), 1, 100),
        node(Stage::Sandbox, Some(1), 2, 80),
        named(Stage::CniPlugin, 2, 10, 70, "bridge"),
        named(Stage::Container, 1, 3, 99, "web"),
        named(Stage::OciCreate, 4, 85, 95, ""),
        node(Stage::Ready, Some(1), 100, 100),
    ]);
    let expected = expect(&[
        (" object", 1),
        ("hand-over to sandbox", 1),
        ("sandbox", 8),
        ("bridge", 60),
        ("sandbox", 10),
        ("container web", 5),
        ("create", 10),
        ("container web", 4),
        ("hand-over to ready", 1),
    ]);
    assert_eq!(path(&tree), expected);
}
