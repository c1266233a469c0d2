use proptest::prelude::*;

use super::*;
use crate::gaps::name_gaps;
use crate::testing::{node, tree};
use crate::tree::SpanNode;

/// The pieces follow each other from the start of the root to the end of the last span.
fn check(tree: &Tree, until: SpanIx) -> Result<(), TestCaseError> {
    let mut path = critical_path(tree, until);
    for named in [false, true] {
        if named {
            name_gaps(&mut path, tree);
        }
        let (begin, end) = (tree.spans[tree.root].start, tree.end(until));
        let total: u64 = path.iter().map(|piece| piece.end - piece.start).sum();
        prop_assert_eq!(total, end.saturating_sub(begin));
        for pair in path.windows(2) {
            prop_assert_eq!(pair[0].end, pair[1].start);
        }
        if total > 0 {
            prop_assert_eq!((path[0].start, path[path.len() - 1].end), (begin, end));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn pieces_sum_to_the_total(
        spans in prop::collection::vec((prop::sample::select(Stage::ALL), any::<prop::sample::Index>(), 0u64..200, 0u64..60, 0..10), 1..80),
    ) {
        let mut nodes: Vec<SpanNode> = Vec::new();
        for (stage, parent, start, duration, open) in spans {
            let parent = (!nodes.is_empty()).then(|| parent.index(nodes.len()));
            let mut span = node(stage, parent, start, start + duration);
            span.end = span.end.filter(|_| open != 0);
            nodes.push(span);
        }
        let mut tree = tree(nodes);
        tree.now += 1000;
        check(&tree, end_of(&tree, None))?;
        for until in 0..tree.spans.len() {
            check(&tree, until)?;
        }
    }
}

#[test]
fn a_wide_tree_takes_no_quadratic_time() {
    let mut nodes = vec![node(Stage::Reconcile, None, 0, 40_000)];
    nodes.extend((0..20_000).map(|index| node(Stage::Write, Some(0), 2 * index, 2 * index + 1)));
    let tree = tree(nodes);
    let mut path = critical_path(&tree, 0);
    name_gaps(&mut path, &tree);
    assert_eq!(path.len(), 40_000);
}

#[test]
fn the_end_is_what_is_waited_for() {
    let open = |stage, parent, start| SpanNode { end: None, ..node(stage, Some(parent), start, start) };
    let write = || node(Stage::Write, None, 0, 1);
    for (spans, end) in [
        (vec![write()], 0),
        (vec![write(), node(Stage::Reconcile, Some(0), 1, 9), node(Stage::Reconcile, Some(0), 1, 5)], 1),
        (vec![write(), node(Stage::Ready, Some(0), 5, 5), node(Stage::Reconcile, Some(0), 1, 9)], 1),
        (
            vec![
                write(),
                node(Stage::Ready, Some(0), 5, 5),
                open(Stage::PodStart, 0, 2),
                open(Stage::Image, 2, 3),
            ],
            3,
        ),
        (vec![write(), open(Stage::Unschedulable, 0, 2), open(Stage::Reconcile, 0, 3)], 1),
        (
            vec![write(), node(Stage::RulesProgrammed, Some(0), 2, 3), node(Stage::Reconcile, Some(0), 1, 9)],
            1,
        ),
    ] {
        assert_eq!(end_of(&tree(spans.clone()), None), end, "{spans:?}");
    }
}
