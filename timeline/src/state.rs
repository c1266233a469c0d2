//! How far what a trace is about has come.

use coracle_trace::{Flags, Stage};
use serde::{Deserialize, Serialize};

use crate::tree::{SpanIx, SpanNode, Tree};

/// The state of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Everything is done.
    Ready,
    /// Something goes on.
    Running,
    /// It was refused, or a pod failed.
    Failed,
    /// Something waits to be tried again.
    Stuck,
    /// What it was about was deleted.
    Gone,
}

impl State {
    /// Whether nothing more is expected to happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed | Self::Gone)
    }
}

/// Waiting that ends by itself only if something else changes.
pub(crate) fn is_stuck(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::Unschedulable
            | Stage::Gated
            | Stage::SchedulerBackoff
            | Stage::ImageBackoff
            | Stage::CrashBackoff
            | Stage::RetryBackoff
    )
}

/// The first write of a tree: what it is about.
pub(crate) fn first_write(tree: &Tree) -> Option<&SpanNode> {
    tree.spans.iter().find(|span| span.stage == Stage::Write)
}

/// The state of a trace, as far as its spans say it.
pub fn state_of(tree: &Tree) -> State {
    let root = &tree.spans[tree.root];
    let first = first_write(tree);
    if is_failed(root) || first.is_some_and(|write| is_failed(write) && write.parent == Some(tree.root)) {
        return State::Failed;
    }
    let open = || tree.spans.iter().filter(|span| span.end.is_none());
    if open().any(|span| is_stuck(span.stage)) {
        return State::Stuck;
    }
    if open().next().is_some() {
        return State::Running;
    }
    if first.is_some_and(|write| write.name == "delete") {
        return State::Gone;
    }
    let failed = |span: &SpanNode| matches!(span.stage, Stage::PodStart | Stage::Admit) && is_failed(span);
    if tree.spans.iter().any(failed) {
        return State::Failed;
    }
    match last_attempt(tree) {
        Some(attempt) if is_failed(&tree.spans[attempt]) => State::Stuck,
        _ => State::Ready,
    }
}

fn is_failed(span: &SpanNode) -> bool {
    span.flags.contains(Flags::FAILED)
}

fn last_attempt(tree: &Tree) -> Option<SpanIx> {
    (0..tree.spans.len()).rev().find(|span| tree.spans[*span].stage == Stage::Attempt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, tree};

    #[test]
    fn states() {
        let write = |name: &str| SpanNode { name: name.into(), ..node(Stage::Write, Some(0), 0, 1) };
        let request = || node(Stage::Request, None, 0, 2);
        let open = |stage| SpanNode { end: None, ..node(stage, Some(1), 1, 1) };
        let failed = |stage| SpanNode { flags: Flags::FAILED, ..node(stage, Some(0), 0, 1) };
        let cases = [
            (vec![request(), write("create")], State::Ready),
            (vec![request(), write("create"), open(Stage::Image)], State::Running),
            (
                vec![request(), write("create"), open(Stage::PodStart), open(Stage::ImageBackoff)],
                State::Stuck,
            ),
            (vec![request(), write("create"), failed(Stage::Attempt)], State::Stuck),
            (vec![request(), write("create"), failed(Stage::PodStart)], State::Failed),
            (vec![request(), failed(Stage::Write)], State::Failed),
            (vec![request(), write("delete")], State::Gone),
            (vec![request(), write("delete"), open(Stage::Terminate)], State::Running),
        ];
        for (spans, state) in cases {
            assert_eq!(state_of(&tree(spans.clone())), state, "{spans:?}");
        }
        assert!(!State::Stuck.is_final() && State::Gone.is_final());
    }
}
