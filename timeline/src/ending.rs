//! Trees that are about the end of something: a deletion, or the eviction of a pod.

use std::collections::HashSet;

use coracle_trace::{Part, Stage};

use crate::tree::{ObjectKey, SpanIx, SpanNode, Tree, first_write, is_failed};

/// The objects that end in a tree, as far as it is about their end. What follows from that, such as the pods that replace them, is no
/// part of it.
pub(crate) struct Ending {
    objects: HashSet<usize>,
    /// The node ended the pod: its object stays.
    pub(crate) is_eviction: bool,
}

impl Ending {
    /// The end that a tree is about. `about`: the object that was asked for, if not what was written first.
    pub(crate) fn of(tree: &Tree, about: Option<&ObjectKey>) -> Option<Self> {
        let key = |object: usize| tree.objects.get(object).map(|object| &object.key);
        let is_about = |object: usize| about.is_none_or(|about| key(object) == Some(about));
        let root = &tree.spans[tree.root];
        if let (Stage::Evicted, Some(pod)) = (root.stage, root.object.filter(|pod| is_about(*pod))) {
            return Some(Self { objects: HashSet::from([pod]), is_eviction: true });
        }
        let is_begun = |object: usize| {
            let starts = |span: &SpanNode| matches!(span.stage, Stage::PodStart | Stage::Ready);
            tree.spans.iter().any(|span| span.object == Some(object) && starts(span))
        };
        let is_pod = |object: usize| key(object).is_some_and(|key| key.resource == "pods");
        let written = |verb: &'static str| {
            tree.spans.iter().filter(move |span| is_write(span, verb)).filter_map(|span| span.object)
        };
        let is_first = first_write(tree)
            .is_some_and(|write| is_write(write, "delete") && write.object.is_none_or(is_about));
        let objects: HashSet<usize> = if is_first {
            written("delete").collect()
        } else {
            about?;
            let made: HashSet<usize> = written("create").collect();
            // A pod that was made here is one that ended here only if it never began.
            let is_end = |object: &usize| !made.contains(object) || is_pod(*object) && !is_begun(*object);
            written("delete").filter(|object| is_about(*object) && is_end(object)).collect()
        };
        (is_first || !objects.is_empty()).then_some(Self { objects, is_eviction: false })
    }

    /// The objects that end, in the order of the tree.
    pub(crate) fn objects(&self) -> impl Iterator<Item = usize> + use<> {
        let mut objects: Vec<usize> = self.objects.iter().copied().collect();
        objects.sort_unstable();
        objects.into_iter()
    }

    /// Whether a span is about one of the objects. Of objects that are not known every span is.
    pub(crate) fn has(&self, span: &SpanNode) -> bool {
        self.objects.is_empty() || span.object.is_some_and(|object| self.objects.contains(&object))
    }

    /// The last step of the end. `None` where a tree has none, as that of an object without any steps.
    pub(crate) fn last_step(&self, tree: &Tree) -> Option<SpanIx> {
        let steps = || (0..tree.spans.len()).filter(|span| self.is_step(&tree.spans[*span]));
        let open = steps().filter(|span| tree.spans[*span].end.is_none());
        // Of open ones the innermost.
        let open = open.max_by_key(|span| (tree.spans[*span].start, *span));
        open.or_else(|| steps().max_by_key(|span| tree.end(*span)))
    }

    fn is_step(&self, span: &SpanNode) -> bool {
        let is_step = span.stage.part() == Part::Teardown
            || matches!(span.stage, Stage::SandboxStop | Stage::Evicted)
            || span.stage == Stage::StatusReport && self.is_eviction
            || is_write(span, "delete");
        is_step && self.has(span)
    }
}

pub(crate) fn is_write(span: &SpanNode, verb: &str) -> bool {
    span.stage == Stage::Write && span.name == verb && !is_failed(span)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::critical::{critical_path, end_of};
    use crate::gaps::name_gaps;
    use crate::state::{State, state_of};
    use crate::testing::{BEGIN, MS, node, tree};
    use crate::tree::TracedObject;

    fn pod(name: &str) -> TracedObject {
        TracedObject { key: key("pods", name), ..TracedObject::default() }
    }

    fn key(resource: &str, name: &str) -> ObjectKey {
        ObjectKey { resource: resource.into(), namespace: "a".into(), name: name.into() }
    }

    fn on_node(stage: Stage, parent: usize, (start, end): (u64, u64), object: usize) -> SpanNode {
        SpanNode { object: Some(object), node: "n1".into(), ..node(stage, Some(parent), start, end) }
    }

    fn write(verb: &str, parent: usize, (start, end): (u64, u64), object: usize) -> SpanNode {
        SpanNode { name: verb.into(), object: Some(object), ..node(Stage::Write, Some(parent), start, end) }
    }

    /// `kubectl delete pod old`, whose replacement starts, and is ready much later.
    fn replaced() -> Tree {
        let mut tree = tree(vec![
            node(Stage::Request, None, 0, 3),
            write("delete", 0, (1, 2), 0),
            on_node(Stage::Terminate, 1, (4, 60), 0),
            on_node(Stage::Stop, 2, (5, 40), 0),
            on_node(Stage::SandboxStop, 2, (41, 50), 0),
            on_node(Stage::ObjectDelete, 2, (50, 60), 0),
            SpanNode { name: "rs".into(), object: Some(0), ..node(Stage::Reconcile, Some(1), 4, 9) },
            write("create", 6, (5, 8), 1),
            on_node(Stage::PodStart, 7, (10, 900), 1),
            on_node(Stage::Ready, 8, (900, 900), 1),
        ]);
        tree.objects = vec![pod("old"), pod("new")];
        tree
    }

    fn total(tree: &Tree, about: Option<&ObjectKey>) -> u64 {
        (tree.end(end_of(tree, about)) - BEGIN) / MS
    }

    #[test]
    fn the_end_of_a_pod_is_not_that_its_replacement_is_ready() {
        let mut tree = replaced();
        let old = key("pods", "old");
        for about in [None, Some(&old)] {
            assert_eq!((state_of(&tree, about), total(&tree, about)), (State::Gone, 60));
        }
        let mut path = critical_path(&tree, end_of(&tree, Some(&old)));
        name_gaps(&mut path, &tree);
        let names: Vec<&str> = path.iter().map(|piece| piece.name.as_str()).collect();
        let steps = ["stop", "hand-over to sandbox stop", "sandbox stop", "object deletion"];
        assert_eq!(names[names.len() - 4..], steps);
        // Of its Deployment it is a change that ends with the new pod.
        let web = key("deployments.apps", "web");
        assert_eq!((state_of(&tree, Some(&web)), total(&tree, Some(&web))), (State::Ready, 900));
        // It is gone although the new one still starts.
        (tree.spans[8].end, tree.spans[9].stage) = (None, Stage::Sync);
        assert_eq!((state_of(&tree, None), total(&tree, None)), (State::Gone, 60));
        assert_eq!(state_of(&tree, Some(&web)), State::Running);
        tree.spans[2].end = None;
        assert_eq!(state_of(&tree, None), State::Running);
    }

    #[test]
    fn a_pod_that_another_change_removed_is_gone() {
        let mut tree = replaced();
        tree.objects.push(TracedObject { key: key("deployments.apps", "web"), ..TracedObject::default() });
        // A rolling update: the first write is that of the Deployment.
        tree.spans.insert(1, write("patch", 0, (0, 1), 2));
        for span in &mut tree.spans[2..] {
            span.parent = span.parent.map(|parent| if parent == 0 { 0 } else { parent + 1 });
        }
        crate::tree::link(&mut tree.spans);
        let old = key("pods", "old");
        assert_eq!((state_of(&tree, Some(&old)), total(&tree, Some(&old))), (State::Gone, 60));
        assert_eq!((state_of(&tree, None), total(&tree, None)), (State::Ready, 900));
        let new = key("pods", "new");
        assert_eq!((state_of(&tree, Some(&new)), total(&tree, Some(&new))), (State::Ready, 900));
    }

    #[test]
    fn an_evicted_pod_has_failed() {
        let root = SpanNode { parent: None, ..on_node(Stage::Evicted, 0, (0, 0), 0) };
        let mut tree = tree(vec![
            root,
            on_node(Stage::Stop, 0, (1, 20), 0),
            on_node(Stage::SandboxStop, 0, (22, 30), 0),
            on_node(Stage::StatusReport, 0, (31, 35), 0),
            SpanNode { name: "PATCH".into(), ..node(Stage::Request, Some(3), 32, 34) },
            write("patch", 4, (33, 34), 0),
            node(Stage::Reconcile, Some(5), 36, 40),
            write("create", 6, (37, 39), 1),
            on_node(Stage::PodStart, 7, (50, 99), 1),
            on_node(Stage::Ready, 8, (99, 99), 1),
        ]);
        tree.objects = vec![pod("old"), pod("new")];
        let old = key("pods", "old");
        assert_eq!((state_of(&tree, Some(&old)), total(&tree, Some(&old))), (State::Failed, 35));
        let web = key("deployments.apps", "web");
        assert_eq!((state_of(&tree, Some(&web)), total(&tree, Some(&web))), (State::Ready, 99));
        let mut path = critical_path(&tree, end_of(&tree, Some(&old)));
        name_gaps(&mut path, &tree);
        let pieces: Vec<(&str, u64)> =
            path.iter().map(|piece| (piece.name.as_str(), (piece.end - piece.start) / MS)).collect();
        let expected = [
            ("hand-over to stop", 1),
            ("stop", 19),
            ("hand-over to sandbox stop", 2),
            ("sandbox stop", 8),
            ("hand-over to status report", 1),
        ];
        assert_eq!(pieces[..5], expected);
        assert!(path.iter().all(|piece| piece.measured), "{pieces:?}");
    }

    #[test]
    fn a_pod_that_was_deleted_before_it_ran_is_gone() {
        let collector = SpanNode {
            name: "pod-garbage-collector".into(),
            ..node(Stage::Reconcile, Some(1), 40_000, 40_009)
        };
        let mut tree = tree(vec![
            node(Stage::Request, None, 0, 3),
            write("create", 0, (1, 2), 0),
            collector,
            write("delete", 2, (40_001, 40_005), 0),
        ]);
        tree.objects = vec![pod("lost")];
        let key = key("pods", "lost");
        assert_eq!((state_of(&tree, Some(&key)), total(&tree, Some(&key))), (State::Gone, 40_005));
        // One that ran has its own trace of its end.
        tree.spans.push(on_node(Stage::PodStart, 1, (4, 60), 0));
        crate::tree::link(&mut tree.spans);
        assert_eq!(state_of(&tree, Some(&key)), State::Ready);
    }
}
