//! The critical path: the chain of spans and waits that the end of a trace depended on.

use std::collections::HashMap;

use coracle_trace::Stage;

use crate::ending::Ending;
use crate::scope::Scope;
use crate::state::is_stuck;
use crate::tree::{ObjectKey, Piece, SpanIx, Tree, first_write, waits_for};
use crate::waiting::Waiting;

/// Clocks are read one after the other: what ended this much later still came before.
const TOLERANCE: u64 = 1_000;

/// Where the critical path of a trace ends. Of a deletion or eviction it is the last step of that. Otherwise it is what the trace waits
/// for now, else the last exit of what runs to its end, else the last pod that became ready, else, of Services, the last node that has
/// the rules, else the last end. `about`: the object that was asked for, if not what was written first.
pub fn end_of(tree: &Tree, about: Option<&ObjectKey>) -> SpanIx {
    if let Some(step) = Ending::of(tree, about).and_then(|ending| ending.last_step(tree)) {
        return step;
    }
    if let Some(span) = Waiting::of(tree, about).and_then(|waiting| waiting.last_span(tree)) {
        return span;
    }
    let scope = Scope::of(tree, about);
    let spans = || (0..tree.spans.len()).filter(|span| scope.has(&tree.spans[*span]));
    let stage = |span: &SpanIx| tree.spans[*span].stage;
    let latest = |wanted: &dyn Fn(Stage) -> bool| {
        let ended = spans().filter(|span| wanted(stage(span)) && tree.spans[*span].end.is_some());
        ended.max_by_key(|span| tree.end(*span))
    };
    let is_open = |span: &SpanIx| tree.spans[*span].end.is_none();
    let is_leaf = |span: &SpanIx| tree.spans[*span].children.iter().all(|child| !is_open(child));
    let open = || spans().filter(|span| is_open(span) && is_leaf(span));
    let waits = open().filter(|span| is_stuck(stage(span))).max_by_key(|span| tree.spans[*span].start);
    let below_pod = |span: &SpanIx| ancestors(tree, *span).any(|above| stage(&above) == Stage::PodStart);
    let works = open().filter(below_pod).max_by_key(|span| tree.spans[*span].start);
    let is_service =
        first_write(tree).and_then(|write| tree.objects.get(write.object?)).is_some_and(|object| {
            matches!(object.key.resource.as_str(), "services" | "endpointslices.discovery.k8s.io")
        });
    let served = || latest(&|stage| stage == Stage::RulesProgrammed);
    let resource = about.map(|about| about.resource.as_str()).or_else(|| {
        first_write(tree).and_then(|write| Some(tree.objects.get(write.object?)?.key.resource.as_str()))
    });
    let exited = || {
        let is_job = matches!(resource, Some("jobs.batch"));
        is_job.then(|| latest(&|stage| matches!(stage, Stage::Exit | Stage::Ready))).flatten()
    };
    waits
        .or(works)
        .or_else(|| is_service.then(served).flatten())
        .or_else(exited)
        .or_else(|| latest(&|stage| stage == Stage::Ready))
        .or_else(|| latest(&|stage| matches!(stage, Stage::PodStart | Stage::Terminate)))
        .or_else(served)
        .or_else(|| open().max_by_key(|span| tree.spans[*span].start))
        .or_else(|| spans().max_by_key(|span| tree.end(*span)))
        .unwrap_or(tree.root)
}

/// The span and everything above it.
fn ancestors(tree: &Tree, span: SpanIx) -> impl Iterator<Item = SpanIx> {
    std::iter::successors(Some(span), |span| tree.spans[*span].parent)
}

/// From the start of the root to the end of `until`: pieces without gaps or overlaps, oldest first. Some are empty: they say which
/// spans the piece beside them is between, and [`name_gaps`](crate::name_gaps) removes them.
pub fn critical_path(tree: &Tree, until: SpanIx) -> Vec<Piece> {
    let mut walk = Walk {
        tree,
        floor: tree.spans[tree.root].start,
        entered: vec![false; tree.spans.len()],
        by_end: HashMap::new(),
        pieces: Vec::new(),
    };
    walk.run(until);
    walk.pieces.reverse();
    walk.pieces
}

/// The way back from the end.
struct Walk<'a> {
    tree: &'a Tree,
    /// Nothing is before the start of the root.
    floor: u64,
    entered: Vec<bool>,
    /// Children of a span that may still be on the path, the earliest end first.
    by_end: HashMap<SpanIx, Vec<SpanIx>>,
    pieces: Vec<Piece>,
}

impl Walk<'_> {
    fn run(&mut self, until: SpanIx) {
        let (mut at, mut time) = (until, self.tree.end(until));
        self.entered[at] = true;
        loop {
            if let Some(child) = self.last_child(at, time) {
                let end = self.tree.end(child).min(time);
                self.add(Some(at), end, time);
                (at, time) = (child, end);
                continue;
            }
            let start = self.tree.spans[at].start.min(time);
            self.add(Some(at), start, time);
            time = start;
            let Some(parent) =
                self.tree.spans[at].parent.filter(|_| time > self.floor && at != self.tree.root)
            else {
                break;
            };
            let before = self.before(at, parent, time);
            let end = self.tree.end(before);
            if before != parent || end <= time.saturating_add(TOLERANCE) {
                self.add(None, end.min(time), time);
                time = end.min(time);
            }
            self.entered[before] = true;
            at = before;
        }
    }

    /// The child that the span waited for last before this time.
    fn last_child(&mut self, span: SpanIx, time: u64) -> Option<SpanIx> {
        let tree = self.tree;
        let begin = tree.spans[span].start.saturating_sub(TOLERANCE);
        let children = self.by_end.entry(span).or_insert_with(|| {
            let is_waited_for = |child: &SpanIx| {
                waits_for(tree.spans[span].stage, tree.spans[*child].stage)
                    && tree.spans[*child].start >= begin
            };
            let mut children: Vec<SpanIx> =
                tree.spans[span].children.iter().copied().filter(is_waited_for).collect();
            children.extend(sandbox_of(tree, span));
            children.sort_by_key(|child| (tree.end(*child), tree.spans[*child].start, *child));
            children
        });
        // The time only goes back: what is too late now is too late for good.
        let is_over = |child: SpanIx| {
            // A container runs, and its pod is ready, before the job that started it has heard of it.
            let is_running = tree.spans[child].stage == Stage::Container && tree.spans[child].start < time;
            is_running || tree.end(child) <= time.saturating_add(TOLERANCE)
        };
        while let Some(child) = children.pop() {
            if !self.entered[child] && is_over(child) {
                self.entered[child] = true;
                return Some(child);
            }
        }
        None
    }

    /// What a span followed: its parent, or if that only caused it, what came between.
    fn before(&self, span: SpanIx, parent: SpanIx, time: u64) -> SpanIx {
        let tree = self.tree;
        if waits_for(tree.spans[parent].stage, tree.spans[span].stage) {
            return parent;
        }
        let latest = time.saturating_add(TOLERANCE);
        let end = |span: &SpanIx| tree.end(*span).min(time);
        // A turn of a control loop sets its timer before it ends.
        let is_over = |span: &SpanIx| {
            tree.end(*span) <= latest
                || tree.spans[*span].stage == Stage::Reconcile && tree.spans[*span].start <= time
        };
        let siblings = tree.spans[parent].children.iter().copied();
        let waits = siblings
            .filter(|sibling| !self.entered[*sibling] && is_over(sibling) && self.precedes(*sibling, span))
            .max_by_key(|sibling| (end(sibling), *sibling));
        let effect = tree.effect(parent);
        let effect = Some(effect).filter(|effect| !self.entered[*effect] && tree.end(*effect) <= latest);
        [effect, waits].into_iter().flatten().max_by_key(end).unwrap_or(parent)
    }

    /// Whether one effect of a write leads to another: the queue to the turn, attempts to attempts, delivery to the node.
    fn precedes(&self, first: SpanIx, then: SpanIx) -> bool {
        let (first, then) = (&self.tree.spans[first], &self.tree.spans[then]);
        let is_scheduling = |stage| {
            use Stage::{Attempt, Gated, SchedulerBackoff, SchedulerQueue, Unschedulable};
            matches!(stage, SchedulerQueue | Gated | SchedulerBackoff | Unschedulable | Attempt)
        };
        let is_same_turn = first.name == then.name && first.text == then.text;
        // What a node does about an exit or an eviction, it does one after the other.
        let cause = first.parent.map(|cause| self.tree.spans[cause].stage);
        if matches!(cause, Some(Stage::Exit | Stage::Evicted)) && !first.stage.is_point() {
            return first.node == then.node;
        }
        match first.stage {
            Stage::Reconcile => then.stage == Stage::Queued && is_same_turn,
            Stage::Queued | Stage::RetryBackoff | Stage::Requeued => {
                then.stage == Stage::Reconcile && is_same_turn
            }
            Stage::Delivered => {
                matches!(then.stage, Stage::Seen | Stage::ServiceSeen) && first.name.ends_with(&then.node)
            }
            Stage::Seen => {
                matches!(then.stage, Stage::PodStart | Stage::Terminate) && first.node == then.node
            }
            Stage::ServiceSeen => then.stage == Stage::RulesProgrammed && first.node == then.node,
            stage => {
                is_scheduling(stage)
                    && (is_scheduling(then.stage) || matches!(then.stage, Stage::Seen | Stage::PodStart))
            }
        }
    }

    fn add(&mut self, span: Option<SpanIx>, start: u64, end: u64) {
        let name = span.map(|span| self.tree.label(span)).unwrap_or_default();
        let measured = span.is_some_and(|span| !is_envelope(self.tree.spans[span].stage));
        let (start, end) = (start.max(self.floor), end.max(self.floor));
        self.pieces.push(Piece { span, name, start, end, measured });
    }
}

/// The sandbox that a container waited for: it is prepared meanwhile.
fn sandbox_of(tree: &Tree, container: SpanIx) -> Option<SpanIx> {
    let span = &tree.spans[container];
    let pod = span.parent.filter(|_| span.stage == Stage::Container)?;
    let is_waited_for = |sandbox: &SpanIx| {
        let end = tree.spans[*sandbox].end;
        tree.spans[*sandbox].stage == Stage::Sandbox
            && end.is_some_and(|end| end > span.start && end <= tree.end(container))
    };
    tree.spans[pod].children.iter().copied().rfind(is_waited_for)
}

/// Spans whose own time explains nothing: they only hold others together.
pub(crate) fn is_envelope(stage: Stage) -> bool {
    matches!(stage, Stage::PodStart | Stage::Terminate | Stage::Other)
}

#[cfg(test)]
mod tests;
