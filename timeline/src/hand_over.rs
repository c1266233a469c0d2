//! The time of a pod's worker between two steps: what it waited for, as far as that was recorded.

use coracle_trace::{Part, Stage};

use crate::tree::{NOT_RECORDED, Piece, SpanNode, Tree};

/// A worker takes a result and begins the next step in less: passes that take longer than a millisecond are spans of their own. What
/// lasted longer has a cause that nobody recorded.
const HAND_OVER: u64 = 5_000_000;
/// The runtime tells of an exit in less.
const NOTICED: u64 = 500_000_000;

/// The worker of a pod between two steps.
pub(crate) struct Worker<'a> {
    /// An index into the objects.
    pub(crate) pod: Option<usize>,
    /// Whether the pod is being removed.
    pub(crate) is_end: bool,
    pub(crate) before: Option<&'a SpanNode>,
    pub(crate) after: Option<&'a SpanNode>,
}

/// Cuts a gap, unless it is short, into what other steps of the pod explain, and what is left. The next step on the path did not wait
/// for these, but the worker was busy with them.
pub(crate) fn hand_overs(tree: &Tree, gap: &Piece, worker: &Worker<'_>) -> Vec<Piece> {
    let next = worker.after.map(|after| name_of(tree, after));
    let taken = gap.end.saturating_sub(gap.start);
    if taken <= HAND_OVER {
        let name = rest(worker.before, next.as_deref(), taken);
        return vec![Piece::between(name, gap.start, gap.end)];
    }
    let mut steps: Vec<(u64, u64, usize)> = (0..tree.spans.len())
        .filter(|span| is_step(worker, &tree.spans[*span]))
        .map(|span| (tree.spans[span].start.max(gap.start), tree.end(span).min(gap.end), span))
        .filter(|(start, end, _)| start < end)
        .collect();
    // The one that goes on for longest of those that begin first.
    steps.sort_by_key(|(start, end, span)| (*start, std::cmp::Reverse(*end), *span));
    let (mut pieces, mut at) = (Vec::new(), gap.start);
    for (start, end, span) in steps {
        if end <= at {
            continue;
        }
        if start > at {
            let before = worker.before.filter(|_| pieces.is_empty());
            let name = rest(before, Some(&tree.label(span)), start - at);
            pieces.push(Piece::between(name, at, start));
        }
        pieces.push(Piece::between(format!("waiting for {}", tree.label(span)), start.max(at), end));
        at = end;
    }
    if at < gap.end || pieces.is_empty() {
        let before = worker.before.filter(|_| pieces.is_empty());
        pieces.push(Piece::between(rest(before, next.as_deref(), gap.end - at), at, gap.end));
    }
    pieces
}

/// A step that the worker does itself. It does not wait for reports, except for the last one of a pod that is being removed.
fn is_step(worker: &Worker<'_>, span: &SpanNode) -> bool {
    let of_pod = worker.pod.is_some() && span.object == worker.pod && !span.node.is_empty();
    let is_whole = matches!(span.stage, Stage::PodStart | Stage::Terminate);
    let is_own = match span.stage.part() {
        Part::Node | Part::Image | Part::Sandbox | Part::Container | Part::Teardown => true,
        Part::Status => worker.is_end,
        _ => false,
    };
    of_pod && is_own && !is_whole
}

fn name_of(tree: &Tree, span: &SpanNode) -> String {
    let index = tree.spans.iter().position(|other| std::ptr::eq(other, span));
    index.map_or_else(|| span.stage.name().to_owned(), |index| tree.label(index))
}

/// What no step explains: the hand-over from one to the next, if that is all it can be.
fn rest(before: Option<&SpanNode>, next: Option<&str>, taken: u64) -> String {
    match (before, next) {
        (Some(exit), _) if exit.stage == Stage::Exit && taken < NOTICED => {
            format!("noticing the exit {}", exit.name).trim_end().to_owned()
        }
        (_, Some(next)) if taken <= HAND_OVER => format!("hand-over to {next}"),
        (_, None) if taken <= HAND_OVER => "hand-over".to_owned(),
        _ => NOT_RECORDED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::coverage;
    use crate::testing::{BEGIN, MS, node, tree};

    fn on_node(stage: Stage, name: &str, start: u64, end: u64) -> SpanNode {
        let span = node(stage, Some(0), start, end);
        SpanNode { name: name.into(), node: "n1".into(), object: Some(0), ..span }
    }

    fn gap(start: u64, end: u64) -> Piece {
        Piece::between(String::new(), BEGIN + start * MS, BEGIN + end * MS)
    }

    fn said(pieces: &[Piece]) -> Vec<(&str, u64, u64)> {
        let ms = |time: u64| (time - BEGIN) / MS;
        pieces.iter().map(|piece| (piece.name.as_str(), ms(piece.start), ms(piece.end))).collect()
    }

    #[test]
    fn only_what_is_known_counts() {
        let tree = tree(vec![
            node(Stage::Write, None, 0, 1),
            on_node(Stage::Image, "nginx", 10, 40),
            on_node(Stage::ImageLayer, "a", 20, 30),
            on_node(Stage::Volumes, "", 60, 62),
            on_node(Stage::StatusReport, "", 62, 90),
        ]);
        let worker = Worker { pod: Some(0), is_end: false, before: None, after: Some(&tree.spans[3]) };
        let pieces = hand_overs(&tree, &gap(8, 60), &worker);
        let want = [
            ("hand-over to image nginx", 8, 10),
            ("waiting for image nginx", 10, 40),
            (NOT_RECORDED, 40, 60),
        ];
        assert_eq!(said(&pieces), want);
        assert!((coverage(&pieces) - 32.0 / 52.0).abs() < 1e-9);
        // Another pod's steps explain nothing.
        let other = Worker { pod: Some(1), ..worker };
        assert_eq!(said(&hand_overs(&tree, &gap(8, 60), &other)), [(NOT_RECORDED, 8, 60)]);
    }

    #[test]
    fn a_report_is_waited_for_only_at_the_end() {
        let tree = tree(vec![node(Stage::Write, None, 0, 1), on_node(Stage::StatusReport, "", 10, 90)]);
        let of = |is_end| Worker { pod: Some(0), is_end, before: None, after: None };
        assert_eq!(said(&hand_overs(&tree, &gap(10, 90), &of(false))), [(NOT_RECORDED, 10, 90)]);
        let want = [("waiting for status report", 10, 90)];
        assert_eq!(said(&hand_overs(&tree, &gap(10, 90), &of(true))), want);
    }

    #[test]
    fn exits_are_noticed_within_half_a_second() {
        let tree = tree(vec![on_node(Stage::Exit, "web", 5, 5)]);
        let worker = Worker { pod: Some(0), is_end: false, before: tree.spans.first(), after: None };
        assert_eq!(said(&hand_overs(&tree, &gap(5, 60), &worker)), [("noticing the exit web", 5, 60)]);
        assert_eq!(said(&hand_overs(&tree, &gap(5, 600), &worker)), [(NOT_RECORDED, 5, 600)]);
    }
}
