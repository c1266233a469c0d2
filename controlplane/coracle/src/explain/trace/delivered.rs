//! Whether nodes have delivered their spans: they send them about every second.

use super::answer::{Object, Span, Trace};
use super::names;

/// As many pods are named.
const NAMED: usize = 3;

/// The pods that were started or ended by traces, while their nodes have not told of it.
pub(super) fn missing(trees: &[Trace]) -> Vec<Object> {
    trees.iter().flat_map(missing_in).cloned().collect()
}

/// What is said about spans that did not come.
pub(super) fn note(missing: &[Object]) -> String {
    format!("the spans of {} have not arrived from the nodes yet", pods(missing))
}

/// The names of some pods, of many only of the first.
pub(super) fn pods(pods: &[Object]) -> String {
    let names: Vec<String> = pods.iter().take(NAMED).map(names::object).collect();
    match (names.split_last(), pods.len().saturating_sub(NAMED)) {
        (None, _) => "no pod".to_owned(),
        (Some((last, [])), 0) => last.clone(),
        (Some((last, others)), 0) => format!("{} and {last}", others.join(", ")),
        (Some(_), 1) => format!("{} and 1 more pod", names.join(", ")),
        (Some(_), more) => format!("{} and {more} more pods", names.join(", ")),
    }
}

/// What is said about requests of a command that are not in its trace.
pub(super) fn lost_note(lost: usize, changes: usize) -> String {
    format!(
        "{lost} of the {changes} changes of the command are not shown: they were not recorded, or are too many"
    )
}

fn missing_in(trace: &Trace) -> impl Iterator<Item = &Object> {
    let pods = trace.objects.iter().enumerate();
    let pods = pods.filter(|(_, object)| object.resource == "pods" && !object.hidden);
    pods.filter(|(index, object)| !is_delivered(trace, *index, object)).map(|(_, object)| object)
}

fn is_delivered(trace: &Trace, index: usize, pod: &Object) -> bool {
    let spans = || trace.spans.iter().filter(move |span| span.object == Some(index));
    let written =
        |verb: &str| spans().any(|span| span.stage == "write" && span.name == verb && !span.has("failed"));
    let has_ended = |stage: &str| spans().any(|span| span.stage == stage && span.end.is_some());
    if written("delete") {
        // The node of a pod that is still being deleted can only have told that it has begun.
        let is_begun = || !pod.waits.is_empty() && spans().any(|span| span.stage == "terminate");
        // A pod that no node had ends without one.
        let is_without_node = || !spans().any(|span: &Span| !span.node.is_empty());
        return has_ended("terminate") || is_begun() || is_without_node();
    }
    !written("create") || has_ended("pod-start")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(spans: &[(&str, &str, Option<u64>, &str)]) -> Trace {
        let pod = Object { resource: "pods".to_owned(), name: "web".to_owned(), ..Object::default() };
        let span = |(stage, name, end, node): &(&str, &str, Option<u64>, &str)| Span {
            stage: (*stage).to_owned(),
            name: (*name).to_owned(),
            object: Some(0),
            end: *end,
            node: (*node).to_owned(),
            ..Span::default()
        };
        Trace { objects: vec![pod], spans: spans.iter().map(span).collect(), ..Trace::default() }
    }

    #[test]
    fn pods_are_told_of_by_their_nodes() {
        let created = ("write", "create", Some(1), "");
        let deleted = ("write", "delete", Some(5), "");
        let start = |end| ("pod-start", "", end, "n1");
        for (spans, want) in [
            (&[created][..], 1),
            (&[created, start(None)], 1),
            (&[created, start(Some(4))], 0),
            (&[deleted], 0),
            (&[deleted, ("seen", "", Some(6), "n1")], 1),
            (&[deleted, ("terminate", "", Some(9), "n1")], 0),
            (&[("write", "patch", Some(1), "")], 0),
        ] {
            assert_eq!(missing(&[trace(spans)]).len(), want, "{spans:?}");
        }
        let mut ending = trace(&[deleted, ("terminate", "", None, "n1")]);
        assert_eq!(missing(std::slice::from_ref(&ending)).len(), 1, "the pod is gone");
        ending.objects[0].waits = "being deleted, waits for n1".to_owned();
        assert!(missing(&[ending]).is_empty(), "its containers have time to end");
        let mut refused = trace(&[created]);
        refused.spans[0].flags = vec!["failed".to_owned()];
        assert!(missing(&[refused]).is_empty(), "it never was a pod");
    }

    #[test]
    fn notes() {
        let pods = |count: usize| -> Vec<Object> {
            let pod =
                |n: usize| Object { resource: "pods".to_owned(), name: format!("p{n}"), ..Object::default() };
            (0..count).map(pod).collect()
        };
        assert_eq!(note(&pods(1)), "the spans of pod/p0 have not arrived from the nodes yet");
        assert_eq!(note(&pods(2)), "the spans of pod/p0 and pod/p1 have not arrived from the nodes yet");
        assert_eq!(super::pods(&pods(4)), "pod/p0, pod/p1, pod/p2 and 1 more pod");
        assert_eq!(super::pods(&pods(9)), "pod/p0, pod/p1, pod/p2 and 6 more pods");
        let lost = "2 of the 6 changes of the command are not shown: they were not recorded, or are too many";
        assert_eq!(lost_note(2, 6), lost);
    }
}
