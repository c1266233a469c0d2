//! Clocks of nodes differ from the server's by more than is known: effects are not shown before their causes.

use std::collections::BTreeMap;

use coracle_trace::Stage;

use crate::tree::{SpanIx, SpanNode, children_of, waits_for};

/// How far the spans of a node may be moved.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// What the clock is said to be off at most.
    uncertainty: i64,
    at_least: i64,
    at_most: i64,
}

/// Moves the spans of each node by as little as brings them between their causes and their effects on other machines, within the
/// uncertainty of its clock. What contradicts even then begins with its cause.
pub(crate) fn align(spans: &mut [SpanNode]) {
    if spans.iter().all(|span| span.uncertainty == 0) {
        return;
    }
    let children = children_of(spans);
    for (node, bounds) in bounds(spans, &children) {
        let Bounds { uncertainty, at_least, at_most } = bounds;
        let shift = if at_least > 0 { at_least } else { at_most.min(0) };
        let shift = shift.clamp(-uncertainty, uncertainty);
        if shift == 0 {
            continue;
        }
        for span in spans.iter_mut().filter(|span| span.node == node && span.uncertainty > 0) {
            span.start = span.start.saturating_add_signed(shift);
            span.end = span.end.map(|end| end.saturating_add_signed(shift));
        }
    }
    clamp(spans, &children);
}

fn bounds(spans: &[SpanNode], children: &[Vec<SpanIx>]) -> BTreeMap<String, Bounds> {
    let mut nodes: BTreeMap<String, Bounds> = BTreeMap::new();
    let difference = |a: u64, b: u64| a.wrapping_sub(b).cast_signed();
    for (index, span) in spans.iter().enumerate() {
        let Some(parent) = span.parent.filter(|parent| spans[*parent].node != span.node) else { continue };
        if span.uncertainty > 0 {
            let bounds = entry(&mut nodes, span);
            let cause = cause_time(spans, children, parent, span.stage);
            bounds.at_least = bounds.at_least.max(difference(cause, span.start));
        }
        let parent = &spans[parent];
        if parent.uncertainty > 0 && waits_for(parent.stage, span.stage) {
            let bounds = entry(&mut nodes, parent);
            bounds.at_most = bounds.at_most.min(difference(spans[index].start, parent.start));
            if let (Some(end), Some(parent_end)) = (span.end, parent.end) {
                bounds.at_least = bounds.at_least.max(difference(end, parent_end));
            }
        }
    }
    nodes
}

fn entry<'a>(nodes: &'a mut BTreeMap<String, Bounds>, span: &SpanNode) -> &'a mut Bounds {
    let bounds = nodes.entry(span.node.clone()).or_insert(Bounds {
        uncertainty: 0,
        at_least: i64::MIN,
        at_most: i64::MAX,
    });
    bounds.uncertainty = bounds.uncertainty.max(i64::try_from(span.uncertainty).unwrap_or(i64::MAX));
    bounds
}

/// The earliest time at which a child of this stage can begin.
fn cause_time(spans: &[SpanNode], children: &[Vec<SpanIx>], parent: SpanIx, child: Stage) -> u64 {
    if waits_for(spans[parent].stage, child) {
        return spans[parent].start;
    }
    let below = |of: SpanIx, stage| children[of].iter().copied().find(|child| spans[*child].stage == stage);
    let published = below(parent, Stage::Store).and_then(|store| below(store, Stage::Publish));
    match published {
        // Watchers get it while it is published.
        Some(published) => spans[published].start,
        None => spans[parent].start,
    }
}

/// Moves the begin of uncertain spans behind their cause, and extends uncertain spans over exact ones that they waited for.
fn clamp(spans: &mut [SpanNode], children: &[Vec<SpanIx>]) {
    let mut rest: Vec<SpanIx> = (0..spans.len()).filter(|span| spans[*span].parent.is_none()).collect();
    while let Some(span) = rest.pop() {
        rest.extend(&children[span]);
        let Some(parent) = spans[span].parent else { continue };
        if spans[span].uncertainty > 0 {
            let cause = cause_time(spans, children, parent, spans[span].stage);
            spans[span].start = spans[span].start.max(cause);
            spans[span].end = spans[span].end.map(|end| end.max(spans[span].start));
        } else if spans[parent].uncertainty > 0 && waits_for(spans[parent].stage, spans[span].stage) {
            let end = spans[span].end;
            spans[parent].start = spans[parent].start.min(spans[span].start);
            spans[parent].end = spans[parent].end.map(|known| end.map_or(known, |end| known.max(end)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{BEGIN, MS, node};

    /// A pod on a node whose clock is off, and its report to the server. Times in milliseconds.
    fn spans(skew: i64, uncertainty: u64) -> Vec<SpanNode> {
        let mut spans = vec![
            node(Stage::Write, None, 100, 110),
            node(Stage::Store, Some(0), 102, 108),
            node(Stage::Publish, Some(1), 106, 107),
            node(Stage::Seen, Some(0), 108, 109),
            node(Stage::PodStart, Some(0), 109, 150),
            node(Stage::StatusReport, Some(4), 140, 148),
            node(Stage::Request, Some(5), 142, 146),
        ];
        for span in &mut spans[3..6] {
            span.node = "node1".into();
            span.uncertainty = uncertainty * MS;
            span.start = span.start.saturating_add_signed(skew * MS as i64);
            span.end = span.end.map(|end| end.saturating_add_signed(skew * MS as i64));
        }
        spans
    }

    #[test]
    fn a_clock_within_the_bounds_is_left_alone() {
        for before in [spans(0, 5), spans(-50, 0)] {
            let mut aligned = before.clone();
            align(&mut aligned);
            assert_eq!(aligned, before);
        }
    }

    proptest! {
        #[test]
        fn effects_follow_their_causes(skew in -40i64..40, known in 0u64..3) {
            let uncertainty = skew.unsigned_abs() + known;
            let mut aligned = spans(skew, uncertainty);
            align(&mut aligned);
            prop_assert!(aligned[3].start >= aligned[2].start);
            prop_assert!(aligned[5].start <= aligned[6].start && aligned[5].end >= aligned[6].end);
            for (before, after) in spans(0, 0).iter().zip(&aligned) {
                prop_assert!(before.start.abs_diff(after.start) <= uncertainty * MS, "{} {}", before.start - BEGIN, after.start - BEGIN);
            }
        }
    }
}
