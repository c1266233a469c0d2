//! Names for the time between spans.

use coracle_trace::{Flags, Part, Stage};

use crate::critical::is_envelope;
use crate::hand_over::{Worker, hand_overs};
use crate::standing::Standing;
use crate::state::last_step;
use crate::tree::{NOT_RECORDED, Piece, SpanIx, SpanNode, Tree, is_failed};

/// Workers need less time between two steps.
const SHORTEST_WAIT: u64 = 500_000_000;
/// A watch delivers within less time to a node that is there.
const AWAY: u64 = 5_000_000_000;

/// What a gap is.
enum Gap {
    Named(String),
    /// The worker of a pod between two steps.
    OfWorker,
}

/// A gap with a name.
fn named(name: impl Into<String>) -> Gap {
    Gap::Named(name.into())
}

/// Names the pieces of a critical path that no span covers by what is before and after them, and removes empty pieces.
pub fn name_gaps(path: &mut Vec<Piece>, tree: &Tree) {
    let mut pieces: Vec<Piece> = Vec::with_capacity(path.len());
    for (index, piece) in path.iter().enumerate() {
        match gap(path, tree, index) {
            None => pieces.push(piece.clone()),
            Some(Gap::Named(name)) => pieces.push(Piece::between(name, piece.start, piece.end)),
            Some(Gap::OfWorker) => pieces.extend(hand_overs(tree, piece, &worker(path, tree, index))),
        }
    }
    *path = pieces;
    path.retain(|piece| piece.end > piece.start);
    // Only an empty span separated them.
    path.dedup_by(|next, before| {
        let same = next.span == before.span && next.name == before.name;
        if same {
            before.end = next.end;
        }
        same
    });
    for index in 0..path.len() {
        let Some(span) = path[index].span else { continue };
        let taken = path[index].end - path[index].start;
        let name = wait_name(&tree.spans[span], taken).or_else(|| way_name(path, tree, index, span));
        if let Some(name) = name {
            path[index].name = name;
        }
    }
}

/// What a piece is that no span explains: one between spans, or the own time of a span that only holds others together.
fn gap(path: &[Piece], tree: &Tree, index: usize) -> Option<Gap> {
    let piece = &path[index];
    if let Some(span) = piece.span {
        return is_envelope(tree.spans[span].stage).then(|| own_time(path, tree, index, span));
    }
    let (before, after) = neighbours(path, tree, index);
    let taken = piece.end.saturating_sub(piece.start);
    let gap = before.zip(after).and_then(|(before, after)| hop(before, after, taken));
    Some(gap.unwrap_or_else(|| named(NOT_RECORDED)))
}

/// The spans before and after a piece.
fn neighbours<'a>(
    path: &[Piece],
    tree: &'a Tree,
    index: usize,
) -> (Option<&'a SpanNode>, Option<&'a SpanNode>) {
    let span = |piece: &Piece| piece.span.map(|span| &tree.spans[span]);
    (path[..index].iter().rev().find_map(span), path[index + 1..].iter().find_map(span))
}

/// Whose time a gap of a worker is, and between which steps.
fn worker<'a>(path: &[Piece], tree: &'a Tree, index: usize) -> Worker<'a> {
    let (before, after) = neighbours(path, tree, index);
    let own = path[index].span.map(|span| &tree.spans[span]);
    let is_end = own.or(after).is_some_and(|span| span.stage.part() == Part::Teardown);
    let pod = [own, after, before].into_iter().flatten().find_map(|span| span.object);
    Worker {
        pod,
        is_end,
        before,
        after: after.filter(|after| own.is_none_or(|own| is_within(after, own, tree))),
    }
}

/// Whether a span began before another one ended.
fn is_within(span: &SpanNode, whole: &SpanNode, tree: &Tree) -> bool {
    span.start <= whole.end.unwrap_or(tree.now)
}

/// What happened between two spans that are not part of each other.
fn hop(before: &SpanNode, after: &SpanNode, taken: u64) -> Option<Gap> {
    let delivery = || match taken >= AWAY {
        true => named(format!("{} was away", after.node)),
        false => named(format!("watch delivery to {}", after.node)),
    };
    let is_stored = matches!(
        before.stage,
        Stage::Publish | Stage::Store | Stage::StoreSync | Stage::ReadBack | Stage::Write
    );
    match (before.stage, after.stage) {
        (Stage::Queued, Stage::Reconcile) => Some(named(format!("work queue of {}", after.name))),
        (Stage::Seen, Stage::PodStart | Stage::Terminate) => Some(Gap::OfWorker),
        (Stage::ServiceSeen, Stage::RulesProgrammed) => {
            Some(named("waiting for the next transaction of rules"))
        }
        (Stage::StatusReport, Stage::Request) => Some(named("on the way to the server")),
        (Stage::Attempt | Stage::Verdict | Stage::Score, Stage::Write | Stage::Bind) => {
            Some(named("binding queue"))
        }
        (Stage::Exit, Stage::Container | Stage::Restart | Stage::Image) if taken >= SHORTEST_WAIT => {
            Some(named(format!("crash back-off {}", before.name)))
        }
        (Stage::Exit | Stage::Evicted, _) => Some(Gap::OfWorker),
        (_, Stage::Exit) if !after.node.is_empty() => Some(named("the container ran")),
        (Stage::Respond | Stage::Request, Stage::ObjectDelete) => Some(named("answer")),
        (stage, Stage::Seen | Stage::ServiceSeen | Stage::RulesProgrammed | Stage::DnsVisible)
            if (is_stored || stage == Stage::Delivered) && !after.node.is_empty() =>
        {
            Some(delivery())
        }
        (_, Stage::Reconcile) if is_stored && after.flags.contains(Flags::RETRIED) => {
            Some(named("waiting to try again after an error"))
        }
        (_, Stage::Reconcile) if is_stored && after.flags.contains(Flags::TIMER) => {
            Some(named("waiting for a timer"))
        }
        (_, stage) if is_stored && matches!(stage.part(), Part::Loop | Part::Scheduler) => {
            Some(named("watch cache"))
        }
        (_, Stage::Delivered) if is_stored => Some(named("watch cache")),
        // Nodes that do not tell when they saw it.
        (_, Stage::PodStart | Stage::Terminate) if is_stored && !after.node.is_empty() => Some(delivery()),
        (_, Stage::Request | Stage::Write) if is_stored && after.flags.contains(Flags::INFERRED) => {
            Some(named("reaction of a client that sends no trace context"))
        }
        (_, after_stage) if is_of_worker(before.stage) && is_of_worker(after_stage) => {
            (before.node == after.node && !after.node.is_empty()).then_some(Gap::OfWorker)
        }
        _ => None,
    }
}

/// Why nothing ran within a span that holds others together.
fn own_time(path: &[Piece], tree: &Tree, index: usize, span: SpanIx) -> Gap {
    let neighbour =
        |piece: Option<&Piece>| piece.and_then(|piece| piece.span).map(|span| tree.spans[span].stage);
    let before = index.checked_sub(1).and_then(|before| neighbour(path.get(before)));
    let after = neighbour(path.get(index + 1));
    let is_first = path[index].start == tree.spans[span].start;
    if let Some(why) = waits_to_try_again(tree, &path[index], &tree.spans[span]) {
        return named(why);
    }
    if let Some(why) = waits_now(tree, &path[index], &tree.spans[span]) {
        return named(why);
    }
    match (before, after) {
        _ if tree.spans[span].stage == Stage::Other => named(NOT_RECORDED),
        (_, Some(Stage::Exit)) => named("the container ran"),
        (Some(Stage::Exit), _) => Gap::OfWorker,
        _ if is_first => Gap::OfWorker,
        (Some(before), after) if is_of_worker(before) && after.is_none_or(is_of_worker) => Gap::OfWorker,
        (None, Some(after)) if is_of_worker(after) => Gap::OfWorker,
        _ => named(NOT_RECORDED),
    }
}

/// What the API says that a pod waits for which starts or ends: the node tells of its steps when they are over.
fn waits_now(tree: &Tree, piece: &Piece, span: &SpanNode) -> Option<String> {
    let is_now = span.end.is_none() && piece.end == tree.now;
    let is_long = piece.end.saturating_sub(piece.start) >= SHORTEST_WAIT;
    let object = span.object.and_then(|object| tree.objects.get(object)).filter(|_| is_now && is_long)?;
    let waits = matches!(object.standing, Standing::Waits(_) | Standing::Ends(_)) && !object.hidden;
    waits.then(|| object.standing.sentence())
}

/// What a starting pod waits for whose last step failed. The node tells of the wait when it is over.
fn waits_to_try_again(tree: &Tree, piece: &Piece, span: &SpanNode) -> Option<String> {
    let is_long = piece.end.saturating_sub(piece.start) >= SHORTEST_WAIT;
    // The containers of a pod that is being removed are not started again.
    let is_start = span.stage.part() != Part::Teardown;
    let step = last_step(tree, span, piece.start).filter(|_| is_long && is_start)?;
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

/// The two ways of what a node sends, before and after the time that the server has for it.
fn way_name(path: &[Piece], tree: &Tree, index: usize, span: SpanIx) -> Option<String> {
    if !matches!(tree.spans[span].stage, Stage::StatusReport | Stage::ObjectDelete) {
        return None;
    }
    let is_served = |piece: Option<&Piece>| {
        let mut above = std::iter::successors(piece?.span, |span| tree.spans[*span].parent);
        let request = above.find(|above| tree.spans[*above].stage == Stage::Request)?;
        (tree.spans[request].parent == Some(span)).then_some(())
    };
    if is_served(path.get(index + 1)).is_some() {
        return Some("on the way to the server".to_owned());
    }
    is_served(path.get(index.checked_sub(1)?)).map(|()| "answer".to_owned())
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
mod tests;
