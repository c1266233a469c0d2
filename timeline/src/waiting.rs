//! What a trace waits for that no span tells of: a pod whose node has not seen it, an object whose deletion does not end, a claim
//! without a volume.

use std::collections::HashSet;

use coracle_trace::Stage;

use crate::ending::{Ending, is_write};
use crate::scope::Scope;
use crate::standing::Standing;
use crate::tree::{ObjectKey, SpanIx, Tree};

/// Resource of the autoscalers that may wait.
pub const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";

/// An object that a trace waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) object: usize,
    /// For people.
    pub(crate) text: String,
    /// Whether it does not go on by itself.
    pub(crate) stuck: bool,
}

impl Waiting {
    /// What a tree waits for, what is stuck first. `about`: the object that was asked for, if not what was written first.
    pub(crate) fn of(tree: &Tree, about: Option<&ObjectKey>) -> Option<Self> {
        let found: Vec<Self> = match Ending::of(tree, about) {
            Some(ending) => ending.objects().filter_map(|object| ends(tree, object)).collect(),
            None => waits(tree, about),
        };
        let stuck = found.iter().position(|waiting| waiting.stuck);
        found.into_iter().nth(stuck.unwrap_or_default())
    }

    fn new(tree: &Tree, object: usize) -> Option<Self> {
        let traced = tree.objects.get(object)?;
        let text = match &traced.standing {
            Standing::Unknown => "waits for its node".to_owned(),
            _ if traced.hidden => "waits".to_owned(),
            standing => standing.sentence(),
        };
        let stuck = match &traced.standing {
            Standing::Waits(cause) | Standing::Ends(cause) => cause.stuck,
            _ => false,
        };
        Some(Self { object, text, stuck })
    }

    /// The last step of the object, unless its node has begun with it: that tells more.
    pub(crate) fn last_span(&self, tree: &Tree) -> Option<SpanIx> {
        let own = || (0..tree.spans.len()).filter(|span| tree.spans[*span].object == Some(self.object));
        let is_begun = own().any(|span| tree.spans[span].end.is_none() || is_start(tree.spans[span].stage));
        if is_begun { None } else { own().max_by_key(|span| tree.end(*span)) }
    }
}

fn ends(tree: &Tree, object: usize) -> Option<Waiting> {
    let standing = &tree.objects.get(object)?.standing;
    matches!(standing, Standing::Ends(_)).then(|| Waiting::new(tree, object)).flatten()
}

/// Claims without a volume and autoscalers without metrics that were asked for, and pods that were made here and have not become ready.
fn waits(tree: &Tree, about: Option<&ObjectKey>) -> Vec<Waiting> {
    let resource = |object: usize| tree.objects.get(object).map(|object| object.key.resource.as_str());
    let written = |verb: &str| -> HashSet<usize> {
        tree.spans.iter().filter(|span| is_write(span, verb)).filter_map(|span| span.object).collect()
    };
    let (made, bound, deleted) = (written("create"), written("bind"), written("delete"));
    let ready: HashSet<usize> = tree
        .spans
        .iter()
        .filter(|span| is_start(span.stage) && span.end.is_some())
        .filter_map(|span| span.object)
        .collect();
    let begun: HashSet<usize> =
        tree.spans.iter().filter(|span| is_start(span.stage)).filter_map(|span| span.object).collect();
    let scope = Scope::of(tree, about);
    let is_waiting = |object: &usize| {
        let of_pod = resource(*object) == Some("pods") && made.contains(object) && !deleted.contains(object);
        let of_claim = resource(*object) == Some("persistentvolumeclaims") && scope.is_only(*object);
        let is_asked = about.is_some_and(|about| tree.objects[*object].key == *about);
        let of_autoscaler = resource(*object) == Some(AUTOSCALERS) && is_asked;
        match &tree.objects[*object].standing {
            // Nodes tell of what they do.
            Standing::Unknown => of_pod && bound.contains(object) && !begun.contains(object),
            Standing::Waits(_) => of_claim || of_autoscaler || of_pod && !ready.contains(object),
            _ => false,
        }
    };
    let objects = (0..tree.objects.len()).filter(|object| scope.has_object(*object));
    objects.filter(is_waiting).filter_map(|object| Waiting::new(tree, object)).collect()
}

/// Whether a pod is ready by its state in the API while its node has told nothing of it, such as that of a stock kubelet: when it
/// became so is not known.
pub(crate) fn is_untold(tree: &Tree, object: usize) -> bool {
    let Some(pod) = tree.objects.get(object) else { return false };
    let own = || tree.spans.iter().filter(|span| span.object == Some(object));
    pod.key.resource == "pods"
        && pod.standing == Standing::Ready
        && own().any(|span| is_write(span, "create"))
        && !own().any(|span| is_start(span.stage))
}

/// What only the node of a pod does.
fn is_start(stage: Stage) -> bool {
    matches!(stage, Stage::PodStart | Stage::Ready | Stage::Exit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::standing::Cause;
    use crate::state::{State, state_of};
    use crate::testing::{BEGIN, MS, node, tree};
    use crate::tree::{SpanNode, TracedObject};
    use crate::view::view_of;

    fn object(resource: &str, name: &str) -> TracedObject {
        let key = ObjectKey { resource: resource.into(), name: name.into(), ..ObjectKey::default() };
        TracedObject { key, ..TracedObject::default() }
    }

    fn about(stage: Stage, parent: usize, (start, end): (u64, u64), object: usize) -> SpanNode {
        SpanNode { object: Some(object), ..node(stage, Some(parent), start, end) }
    }

    fn write(verb: &str, parent: usize, times: (u64, u64), object: usize) -> SpanNode {
        SpanNode { name: verb.into(), ..about(Stage::Write, parent, times, object) }
    }

    fn cause(what: &str, stuck: bool) -> Cause {
        Cause { what: what.to_owned(), stuck }
    }

    /// A Deployment with two pods, both bound, of which one is ready.
    fn web() -> Tree {
        let mut tree = tree(vec![
            node(Stage::Request, None, 0, 3),
            write("create", 0, (1, 2), 0),
            node(Stage::Reconcile, Some(1), 3, 6),
            write("create", 2, (4, 5), 1),
            write("create", 2, (5, 6), 2),
            write("bind", 3, (7, 8), 1),
            write("bind", 4, (8, 9), 2),
            SpanNode { node: "n1".into(), ..about(Stage::PodStart, 5, (10, 90), 1) },
            SpanNode { node: "n1".into(), ..about(Stage::Ready, 7, (90, 90), 1) },
        ]);
        tree.objects = vec![object("deployments.apps", "web"), object("pods", "a"), object("pods", "b")];
        tree.now = BEGIN + 5000 * MS;
        tree
    }

    #[test]
    fn a_pod_whose_node_is_away_is_not_ready() {
        let mut tree = web();
        let (deployment, ready, waits) =
            (tree.objects[0].key.clone(), tree.objects[1].key.clone(), tree.objects[2].key.clone());
        assert_eq!(state_of(&tree, Some(&deployment)), State::Running);
        assert_eq!(state_of(&tree, None), State::Running);
        assert_eq!(state_of(&tree, Some(&waits)), State::Running);
        assert_eq!(state_of(&tree, Some(&ready)), State::Ready, "a pod answers for itself");
        tree.objects[2].standing = Standing::Waits(cause("node-3, which is away", true));
        assert_eq!(state_of(&tree, Some(&deployment)), State::Stuck);
        assert_eq!(state_of(&tree, Some(&ready)), State::Ready);
        let view = view_of(&tree, Some(&deployment), None);
        let last = view.critical.last().unwrap();
        assert_eq!((last.name.as_str(), last.end), ("waits for node-3, which is away", 5000 * MS));
        assert_eq!(view.summary.total, 5000 * MS);
        assert_eq!((view.end, view.objects[2].waits.as_str()), (None, "waits for node-3, which is away"));
        // A node that sends no spans.
        tree.objects[2].standing = Standing::Ready;
        assert_eq!(state_of(&tree, Some(&deployment)), State::Ready);
        let view = view_of(&tree, Some(&deployment), None);
        let untold: Vec<bool> = view.objects.iter().map(|object| object.untold).collect();
        assert_eq!((untold.as_slice(), view.end), (&[false, false, true][..], None));
        assert!(view_of(&tree, Some(&ready), None).end.is_some(), "the other pod's node told of it");
        tree.objects[2].standing = Standing::Gone;
        assert_eq!(state_of(&tree, Some(&deployment)), State::Ready);
    }

    #[test]
    fn what_was_ready_once_stays_so() {
        let mut tree = web();
        tree.objects[1].standing = Standing::Waits(cause("the readiness probe of container c", false));
        tree.objects[2].standing = Standing::Ready;
        assert_eq!(state_of(&tree, None), State::Ready);
    }

    #[test]
    fn an_object_that_is_still_there_is_not_gone() {
        let mut tree = tree(vec![node(Stage::Request, None, 0, 3), write("delete", 0, (1, 2), 0)]);
        tree.objects = vec![object("namespaces", "old")];
        tree.now = BEGIN + 9000 * MS;
        let key = tree.objects[0].key.clone();
        assert_eq!(state_of(&tree, Some(&key)), State::Gone);
        tree.objects[0].standing = Standing::Ends(cause("node-3", false));
        assert_eq!(state_of(&tree, Some(&key)), State::Running);
        tree.objects[0].standing = Standing::Ends(cause("finalizer example.com/hold", true));
        assert_eq!(state_of(&tree, Some(&key)), State::Stuck);
        let view = view_of(&tree, Some(&key), None);
        let last = view.critical.last().unwrap();
        assert_eq!(last.name, "being deleted, waits for finalizer example.com/hold");
        assert_eq!((view.summary.total, view.end), (9000 * MS, None));
    }

    #[test]
    fn a_claim_is_ready_when_it_is_bound() {
        let mut tree = web();
        tree.objects.push(object("persistentvolumeclaims", "data"));
        tree.objects[2].standing = Standing::Ready;
        tree.spans.push(write("create", 2, (6, 7), 3));
        crate::tree::link(&mut tree.spans);
        let key = tree.objects[3].key.clone();
        tree.objects[3].standing = Standing::Waits(cause("storage class gold, which does not exist", true));
        assert_eq!(state_of(&tree, Some(&key)), State::Stuck);
        assert_eq!(state_of(&tree, None), State::Ready, "its StatefulSet answers for the pods");
        tree.objects[3].standing = Standing::Waits(cause("a pod that uses it", false));
        assert_eq!(state_of(&tree, Some(&key)), State::Running);
        tree.objects[3].standing = Standing::Ready;
        assert_eq!(state_of(&tree, Some(&key)), State::Ready);
        assert_eq!(view_of(&tree, Some(&key), None).summary.total, 7 * MS);
    }

    #[test]
    fn an_autoscaler_without_metrics_is_stuck_when_it_is_asked_for() {
        let mut tree = tree(vec![node(Stage::Request, None, 0, 3), write("create", 0, (1, 2), 0)]);
        tree.objects = vec![object(AUTOSCALERS, "web")];
        tree.now = BEGIN + 5000 * MS;
        let key = tree.objects[0].key.clone();
        assert_eq!(state_of(&tree, Some(&key)), State::Ready);
        tree.objects[0].standing = Standing::Waits(cause("metrics", true));
        assert_eq!(state_of(&tree, Some(&key)), State::Stuck);
        assert_eq!(view_of(&tree, Some(&key), None).objects[0].waits, "waits for metrics");
        assert_eq!(state_of(&tree, None), State::Ready);
    }

    #[test]
    fn names_of_hidden_objects_stay_hidden() {
        let mut tree = web();
        tree.objects[2].standing = Standing::Waits(cause("node-3", false));
        tree.objects[2].hidden = true;
        let view = view_of(&tree, None, None);
        assert_eq!((view.state, view.objects[2].waits.as_str()), (State::Running, ""));
        assert_eq!(view.critical.last().unwrap().name, "waits");
    }

    #[test]
    fn a_preemptor_is_ready_although_the_replacement_of_its_victim_waits() {
        let mut tree = web();
        let open = SpanNode { end: None, ..about(Stage::Unschedulable, 4, (20, 20), 2) };
        tree.spans.push(open);
        crate::tree::link(&mut tree.spans);
        let (runs, waits) = (tree.objects[1].key.clone(), tree.objects[2].key.clone());
        assert_eq!(state_of(&tree, Some(&runs)), State::Ready);
        assert_eq!(view_of(&tree, Some(&runs), None).summary.total, 90 * MS);
        assert_eq!(state_of(&tree, Some(&waits)), State::Stuck);
        assert_eq!(state_of(&tree, None), State::Stuck);
    }
}
