//! How far what a trace is about has come.

use std::collections::HashMap;

use coracle_trace::{Flags, Stage};
use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::scope::Scope;
use crate::standing::Standing;
use crate::tree::{ObjectKey, SpanIx, SpanNode, Tree, first_write, is_failed};
use crate::waiting::Waiting;

/// HTTP status of what exists already.
const CONFLICT: u16 = 409;
/// The first HTTP status of requests that are refused.
const BAD_REQUEST: u16 = 400;

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
    /// What runs to its end, such as a Job, has done so.
    Complete,
}

impl State {
    /// Whether nothing more is expected to happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed | Self::Gone | Self::Complete)
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

/// The state of a trace, as far as its spans say it. `about`: the object that was asked for, if not what was written first.
pub fn state_of(tree: &Tree, about: Option<&ObjectKey>) -> State {
    let root = &tree.spans[tree.root];
    let first = first_write(tree);
    if is_refused_request(root)
        || first.is_some_and(|write| is_failed(write) && write.parent == Some(tree.root))
        || first.is_some_and(|write| is_made_in_vain(tree, write))
    {
        return State::Failed;
    }
    let scope = Scope::of(tree, about);
    let waiting = Waiting::of(tree, about);
    let is_waiting = |stuck: bool| waiting.as_ref().is_some_and(|waiting| waiting.stuck == stuck);
    let open = || tree.spans.iter().filter(|span| span.end.is_none());
    if let Some(ending) = Ending::of(tree, about) {
        let goes_on = |span: &SpanNode| ending.has(span) || span.parent.is_none();
        return match open().any(goes_on) {
            _ if is_waiting(true) => State::Stuck,
            true => State::Running,
            false if is_waiting(false) => State::Running,
            false if ending.is_eviction => State::Failed,
            false => State::Gone,
        };
    }
    let open = || open().filter(|span| scope.has(span));
    let is_stuck = |span: &SpanNode| is_stuck(span.stage) || is_start_in_vain(tree, span);
    if open().any(is_stuck) || is_refused(tree, &scope) || is_waiting(true) {
        return State::Stuck;
    }
    if open().next().is_some() || is_waiting(false) {
        return State::Running;
    }
    let failed = |span: &SpanNode| matches!(span.stage, Stage::PodStart | Stage::Admit) && is_failed(span);
    if tree.spans.iter().filter(|span| scope.has(span)).any(failed) {
        return State::Failed;
    }
    match last_attempt(tree, &scope) {
        Some(attempt) if is_failed(&tree.spans[attempt]) => State::Stuck,
        _ => State::Ready,
    }
}

/// Whether a request was answered with an error.
fn is_refused_request(root: &SpanNode) -> bool {
    is_failed(root) || root.stage == Stage::Request && root.code >= BAD_REQUEST
}

/// Whether the server was killed while an object was made, and the object is not there. Nothing followed from it.
fn is_made_in_vain(tree: &Tree, write: &SpanNode) -> bool {
    let object = write.object.and_then(|object| tree.objects.get(object));
    write.name == "create"
        && write.flags.contains(Flags::UNFINISHED)
        && write.revision == 0
        && object.is_some_and(|object| object.standing == Standing::Gone)
}

/// Whether the last objects that a control loop tried to make were refused, such as by a quota.
fn is_refused(tree: &Tree, scope: &Scope) -> bool {
    let mut last: HashMap<(&str, &str), (SpanIx, bool)> = HashMap::new();
    let creates = tree.spans.iter().filter(|span| span.stage == Stage::Write && span.name == "create");
    for span in creates.filter(|span| scope.has(span)) {
        let Some(turn) = span.parent.filter(|turn| tree.spans[*turn].stage == Stage::Reconcile) else {
            continue;
        };
        // What exists already needs not be made.
        let refused = is_failed(span) && span.code != CONFLICT;
        let of_loop = (tree.spans[turn].name.as_str(), tree.spans[turn].text.as_str());
        let known = last.entry(of_loop).or_insert((turn, false));
        *known = (turn, refused || known.0 == turn && known.1);
    }
    last.values().any(|(_, refused)| *refused)
}

/// Whether a pod that starts has failed in its last step, or its containers ended again and again. What it waits for is known when it
/// has waited.
fn is_start_in_vain(tree: &Tree, start: &SpanNode) -> bool {
    let mut steps = steps(tree, start);
    let exits = steps.clone().filter(|step| step.stage == Stage::Exit && step.code != 0).count();
    let is_over = start.stage == Stage::PodStart && steps.all(|step| step.end.is_some());
    is_over
        && last_step(tree, start, tree.now)
            .is_some_and(|step| is_failed(step) || step.stage == Stage::Exit && exits > 1)
}

/// The step of a starting pod that ended last before a time.
pub(crate) fn last_step<'a>(tree: &'a Tree, start: &'a SpanNode, time: u64) -> Option<&'a SpanNode> {
    let ended = steps(tree, start).filter(|step| step.end.is_some_and(|end| end <= time));
    ended.max_by_key(|step| (step.end, step.start))
}

fn steps<'a>(tree: &'a Tree, start: &'a SpanNode) -> impl Iterator<Item = &'a SpanNode> + Clone {
    start.children.iter().map(|child| &tree.spans[*child]).filter(|step| is_step(step.stage))
}

/// What a pod needs to start.
fn is_step(stage: Stage) -> bool {
    use Stage::{Container, CrashBackoff, Exit, Image, ImageBackoff, InitRun, Probe, Sandbox, Volumes};
    matches!(
        stage,
        Volumes | Image | ImageBackoff | Sandbox | Container | InitRun | Probe | Exit | CrashBackoff
    )
}

fn last_attempt(tree: &Tree, scope: &Scope) -> Option<SpanIx> {
    let is_attempt = |span: &SpanNode| span.stage == Stage::Attempt && scope.has(span);
    (0..tree.spans.len()).rev().find(|span| is_attempt(&tree.spans[*span]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, tree};
    use crate::tree::TracedObject;

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
            (vec![SpanNode { code: 403, ..request() }], State::Failed),
            (vec![SpanNode { code: 201, ..request() }], State::Ready),
            (vec![request(), write("delete")], State::Gone),
            (vec![request(), write("delete"), open(Stage::Terminate)], State::Running),
        ];
        for (spans, state) in cases {
            assert_eq!(state_of(&tree(spans.clone()), None), state, "{spans:?}");
        }
        assert!(!State::Stuck.is_final() && State::Gone.is_final());
    }

    #[test]
    fn what_a_crash_kept_from_being_made_is_not_ready() {
        let create = SpanNode { name: "create".into(), object: Some(0), ..node(Stage::Write, Some(0), 0, 1) };
        let state = |create: SpanNode, standing: Standing| {
            let mut tree = tree(vec![node(Stage::Request, None, 0, 2), create]);
            tree.objects = vec![TracedObject { standing, ..TracedObject::default() }];
            state_of(&tree, None)
        };
        let cut = SpanNode { flags: Flags::UNFINISHED, ..create.clone() };
        assert_eq!(state(cut.clone(), Standing::Gone), State::Failed);
        assert_eq!(state(cut.clone(), Standing::Ready), State::Ready, "it was stored");
        assert_eq!(state(SpanNode { revision: 9, ..cut }, Standing::Gone), State::Ready, "it was there");
        assert_eq!(state(create, Standing::Gone), State::Ready, "it was deleted later");
    }

    #[test]
    fn a_deleted_pod_is_no_deleted_deployment() {
        let delete = SpanNode { name: "delete".into(), object: Some(0), ..node(Stage::Write, Some(0), 0, 1) };
        let mut tree = tree(vec![node(Stage::Request, None, 0, 2), delete]);
        let key = |resource: &str| ObjectKey { resource: resource.into(), ..ObjectKey::default() };
        tree.objects = vec![TracedObject { key: key("pods"), ..TracedObject::default() }];
        assert_eq!(state_of(&tree, Some(&key("pods"))), State::Gone);
        assert_eq!(state_of(&tree, Some(&key("deployments.apps"))), State::Ready);
    }

    #[test]
    fn refused_pods_are_waited_for() {
        let turn =
            |start| SpanNode { name: "rs".into(), ..node(Stage::Reconcile, Some(0), start, start + 5) };
        let create = |turn, start, flags, code| SpanNode {
            name: "create".into(),
            flags,
            code,
            ..node(Stage::Write, Some(turn), start, start + 1)
        };
        let first = vec![
            node(Stage::Request, None, 0, 2),
            turn(3),
            create(1, 4, Flags::NONE, 201),
            create(1, 5, Flags::FAILED, 403),
        ];
        assert_eq!(state_of(&tree(first.clone()), None), State::Stuck);
        let more = |flags, code| [first.clone(), vec![turn(20), create(4, 21, flags, code)]].concat();
        assert_eq!(state_of(&tree(more(Flags::FAILED, 403)), None), State::Stuck);
        assert_eq!(state_of(&tree(more(Flags::NONE, 201)), None), State::Ready);
        assert_eq!(state_of(&tree(more(Flags::FAILED, 409)), None), State::Ready);
    }

    #[test]
    fn pods_that_start_in_vain() {
        let start = |steps: Vec<SpanNode>| {
            let start = SpanNode { end: None, ..node(Stage::PodStart, Some(0), 1, 1) };
            tree([vec![node(Stage::Write, None, 0, 1), start], steps].concat())
        };
        let step = |stage, at, flags, code| SpanNode { flags, code, ..node(stage, Some(1), at, at + 1) };
        let pull = step(Stage::Image, 2, Flags::FAILED, 0);
        let report = step(Stage::StatusReport, 4, Flags::NONE, 0);
        assert_eq!(state_of(&start(vec![pull.clone(), report]), None), State::Stuck);
        let container = step(Stage::Container, 6, Flags::NONE, 0);
        assert_eq!(state_of(&start(vec![pull, container.clone()]), None), State::Running);
        let exit = |at| step(Stage::Exit, at, Flags::NONE, 1);
        assert_eq!(state_of(&start(vec![container.clone(), exit(8)]), None), State::Running);
        assert_eq!(state_of(&start(vec![container, exit(8), exit(12)]), None), State::Stuck);
    }
}
