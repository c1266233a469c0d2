//! Names for the time between spans.

use coracle_trace::{Flags, Part, Stage};

use crate::critical::is_envelope;
use crate::standing::Standing;
use crate::state::last_step;
use crate::tree::{Piece, SpanIx, SpanNode, Tree, is_failed};

const NOT_RECORDED: &str = "not recorded";
/// Workers need less time between two steps.
const SHORTEST_WAIT: u64 = 500_000_000;
/// A watch delivers within less time to a node that is there.
const AWAY: u64 = 5_000_000_000;

/// Names the pieces of a critical path that no span covers by what is before and after them, and removes empty pieces.
pub fn name_gaps(path: &mut Vec<Piece>, tree: &Tree) {
    let names: Vec<Option<String>> = (0..path.len()).map(|index| gap_name(path, tree, index)).collect();
    for (piece, name) in path.iter_mut().zip(names) {
        let Some(name) = name else { continue };
        piece.measured = name != NOT_RECORDED;
        piece.span = None;
        piece.name = name;
    }
    path.retain(|piece| piece.end > piece.start);
    // Only an empty span separated them.
    path.dedup_by(|next, before| {
        let same = next.span == before.span && next.name == before.name;
        if same {
            before.end = next.end;
        }
        same
    });
    for piece in path.iter_mut() {
        if let Some(name) = piece.span.and_then(|span| wait_name(&tree.spans[span], piece.end - piece.start))
        {
            piece.name = name;
        }
    }
}

/// The name of a piece that is a gap, or of the own time of a span that only holds others together.
fn gap_name(path: &[Piece], tree: &Tree, index: usize) -> Option<String> {
    let piece = &path[index];
    if let Some(span) = piece.span {
        return is_envelope(tree.spans[span].stage).then(|| own_time(path, tree, index, span));
    }
    let before = path[..index].iter().rev().find_map(|piece| piece.span).map(|span| &tree.spans[span]);
    let after = path[index + 1..].iter().find_map(|piece| piece.span).map(|span| &tree.spans[span]);
    let taken = piece.end.saturating_sub(piece.start);
    let name = before.zip(after).and_then(|(before, after)| hop(before, after, taken));
    Some(name.unwrap_or_else(|| NOT_RECORDED.to_owned()))
}

/// What happened between two spans that are not part of each other.
fn hop(before: &SpanNode, after: &SpanNode, taken: u64) -> Option<String> {
    let delivery = || match taken >= AWAY {
        true => format!("{} was away", after.node),
        false => format!("watch delivery to {}", after.node),
    };
    let is_stored = matches!(
        before.stage,
        Stage::Publish | Stage::Store | Stage::StoreSync | Stage::ReadBack | Stage::Write
    );
    match (before.stage, after.stage) {
        (Stage::Queued, Stage::Reconcile) => Some(format!("work queue of {}", after.name)),
        (Stage::Seen, Stage::PodStart | Stage::Terminate) => Some("pod worker".into()),
        (Stage::ServiceSeen, Stage::RulesProgrammed) => {
            Some("waiting for the next transaction of rules".into())
        }
        (Stage::StatusReport, Stage::Request) => Some("on the way to the server".into()),
        (Stage::Respond, Stage::StatusReport) => Some("answer".into()),
        (Stage::Attempt | Stage::Verdict | Stage::Score, Stage::Write | Stage::Bind) => {
            Some("binding queue".into())
        }
        (Stage::Exit, Stage::Container | Stage::Restart | Stage::Image) if taken >= SHORTEST_WAIT => {
            Some(format!("crash back-off {}", before.name))
        }
        (Stage::Exit | Stage::Evicted, _) => Some("pod worker".into()),
        (_, Stage::Exit) if !after.node.is_empty() => Some("the container ran".into()),
        (Stage::Respond | Stage::Request, Stage::ObjectDelete) => Some("answer".into()),
        (stage, Stage::Seen | Stage::ServiceSeen | Stage::RulesProgrammed | Stage::DnsVisible)
            if (is_stored || stage == Stage::Delivered) && !after.node.is_empty() =>
        {
            Some(delivery())
        }
        (_, Stage::Reconcile) if is_stored && after.flags.contains(Flags::RETRIED) => {
            Some("waiting to try again after an error".into())
        }
        (_, Stage::Reconcile) if is_stored && after.flags.contains(Flags::TIMER) => {
            Some("waiting for a timer".into())
        }
        (_, stage) if is_stored && matches!(stage.part(), Part::Loop | Part::Scheduler) => {
            Some("watch cache".into())
        }
        (_, Stage::Delivered) if is_stored => Some("watch cache".into()),
        // Nodes that do not tell when they saw it.
        (_, Stage::PodStart | Stage::Terminate) if is_stored && !after.node.is_empty() => Some(delivery()),
        (_, Stage::Request | Stage::Write) if is_stored && after.flags.contains(Flags::INFERRED) => {
            Some("reaction of a client that sends no trace context".into())
        }
        (_, after_stage) if is_of_worker(before.stage) && is_of_worker(after_stage) => {
            (before.node == after.node && !after.node.is_empty()).then(|| "pod worker".into())
        }
        _ => None,
    }
}

/// Why nothing ran within a span that holds others together.
fn own_time(path: &[Piece], tree: &Tree, index: usize, span: SpanIx) -> String {
    let neighbour =
        |piece: Option<&Piece>| piece.and_then(|piece| piece.span).map(|span| tree.spans[span].stage);
    let before = index.checked_sub(1).and_then(|before| neighbour(path.get(before)));
    let after = neighbour(path.get(index + 1));
    let is_first = path[index].start == tree.spans[span].start;
    if let Some(why) = waits_to_try_again(tree, &path[index], &tree.spans[span]) {
        return why;
    }
    if let Some(why) = waits_now(tree, &path[index], &tree.spans[span]) {
        return why;
    }
    match (before, after) {
        (_, Some(Stage::Exit)) => "the container ran".into(),
        (Some(Stage::Exit), _) => "pod worker".into(),
        _ if is_first => "pod worker".into(),
        (Some(before), after) if is_of_worker(before) && after.is_none_or(is_of_worker) => {
            "pod worker".into()
        }
        (None, Some(after)) if is_of_worker(after) => "pod worker".into(),
        _ => NOT_RECORDED.to_owned(),
    }
}

/// What the API says that a starting pod waits for: the node tells of its steps when they are over.
fn waits_now(tree: &Tree, piece: &Piece, span: &SpanNode) -> Option<String> {
    let is_now = span.end.is_none() && piece.end == tree.now;
    let is_long = piece.end.saturating_sub(piece.start) >= SHORTEST_WAIT;
    let object = span.object.and_then(|object| tree.objects.get(object)).filter(|_| is_now && is_long)?;
    let waits = matches!(object.standing, Standing::Waits(_)) && !object.hidden;
    waits.then(|| object.standing.sentence())
}

/// What a starting pod waits for whose last step failed. The node tells of the wait when it is over.
fn waits_to_try_again(tree: &Tree, piece: &Piece, span: &SpanNode) -> Option<String> {
    let is_long = piece.end.saturating_sub(piece.start) >= SHORTEST_WAIT;
    let step = last_step(tree, span, piece.start).filter(|_| is_long)?;
    match step.stage {
        Stage::Exit if span.end.is_none() && piece.end == tree.now => {
            Some(format!("crash back-off {}", step.name))
        }
        Stage::Image if is_failed(step) => Some(format!("image pull back-off {}", step.name)),
        _ if is_failed(step) => {
            Some(format!("waiting to try again: {} {}", step.stage.name(), step.name).trim_end().to_owned())
        }
        _ => None,
    }
}

/// What the worker of a pod does, or waits for, one after the other: in between it hands a job to a thread, or hears of its result.
fn is_of_worker(stage: Stage) -> bool {
    let is_report = matches!(stage, Stage::Request | Stage::Respond | Stage::ObjectDelete);
    is_report
        || matches!(
            stage.part(),
            Part::Node | Part::Image | Part::Sandbox | Part::Container | Part::Status | Part::Teardown
        )
}

/// Waits that are spans of their own: how long, for what and why.
fn wait_name(span: &SpanNode, duration: u64) -> Option<String> {
    let seconds = duration as f64 / 1e9;
    let what = match span.stage {
        Stage::Queued if span.flags.contains(Flags::RETRIED) => {
            return Some(format!("waited {seconds:.1} s to try again after an error"));
        }
        Stage::Queued if span.flags.contains(Flags::TIMER) => {
            return Some(format!("waited {seconds:.1} s for a timer of {}", span.name));
        }
        Stage::ImageBackoff => "image pull back-off",
        Stage::CrashBackoff => "crash loop back-off",
        Stage::SchedulerBackoff => "scheduling back-off",
        Stage::Unschedulable => "a node",
        Stage::Gated => "scheduling gates",
        Stage::FlowQueue => "flow control",
        Stage::StatusHeld => "the next status report",
        _ => return None,
    };
    let reason = [span.text.as_str(), span.name.as_str()].into_iter().find(|reason| !reason.is_empty());
    Some(match reason {
        Some(reason) => format!("waited {seconds:.1} s for {what}: {reason}"),
        None => format!("waited {seconds:.1} s for {what}"),
    })
}

#[cfg(test)]
mod tests {
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
            ("pod worker", 4),
            ("sandbox", 20),
            ("pod worker", 4),
            ("container", 6),
            ("pod worker", 10),
        ]);
        assert_eq!(path(&tree), expected);
        let mut pieces = critical_path(&tree, end_of(&tree, None));
        name_gaps(&mut pieces, &tree);
        assert!((coverage(&pieces) - 1.0).abs() < 1e-9);
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
            ("pod worker", 1),
            ("sandbox", 8),
            ("bridge", 60),
            ("sandbox", 10),
            ("container web", 5),
            ("create", 10),
            ("container web", 4),
            ("pod worker", 1),
        ]);
        assert_eq!(path(&tree), expected);
    }
}
