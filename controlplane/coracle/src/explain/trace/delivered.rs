//! Whether nodes have delivered their spans: they send them about every second.

use super::answer::{Span, Trace};

/// How many pods were started or ended by a trace, while their nodes have not told of it.
pub(super) fn missing(trees: &[Trace]) -> usize {
    trees.iter().map(missing_in).sum()
}

/// What is said about spans that did not come.
pub(super) fn note(missing: usize) -> String {
    let pods = if missing == 1 { "1 pod" } else { &format!("{missing} pods") };
    format!("the spans of {pods} have not arrived from the nodes yet")
}

/// What is said about requests of a command that are not in its trace.
pub(super) fn lost_note(lost: usize, changes: usize) -> String {
    format!(
        "{lost} of the {changes} changes of the command are not shown: they were not recorded, or are too many"
    )
}

fn missing_in(trace: &Trace) -> usize {
    let is_pod = |index: &usize| trace.objects[*index].resource == "pods" && !trace.objects[*index].hidden;
    (0..trace.objects.len()).filter(is_pod).filter(|pod| !is_delivered(trace, *pod)).count()
}

fn is_delivered(trace: &Trace, pod: usize) -> bool {
    let spans = || trace.spans.iter().filter(move |span| span.object == Some(pod));
    let written =
        |verb: &str| spans().any(|span| span.stage == "write" && span.name == verb && !span.has("failed"));
    let has_ended = |stage: &str| spans().any(|span| span.stage == stage && span.end.is_some());
    if written("delete") {
        // A pod that no node had ends without one.
        return has_ended("terminate") || !spans().any(|span: &Span| !span.node.is_empty());
    }
    !written("create") || has_ended("pod-start")
}

#[cfg(test)]
mod tests {
    use super::super::answer::Object;
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
            assert_eq!(missing(&[trace(spans)]), want, "{spans:?}");
        }
        let mut refused = trace(&[created]);
        refused.spans[0].flags = vec!["failed".to_owned()];
        assert_eq!(missing(&[refused]), 0, "it never was a pod");
    }

    #[test]
    fn notes() {
        assert_eq!(note(1), "the spans of 1 pod have not arrived from the nodes yet");
        let lost = "2 of the 6 changes of the command are not shown: they were not recorded, or are too many";
        assert_eq!(lost_note(2, 6), lost);
        assert_eq!(note(3), "the spans of 3 pods have not arrived from the nodes yet");
    }
}
