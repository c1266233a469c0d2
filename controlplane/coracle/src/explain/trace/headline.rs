//! The lines above the waterfall: what happened, who did it, how it ended.

use super::answer::{Object, Span, Subject, Trace};
use super::names::{self, age};
use super::nodes::Builder;
use super::outcome::outcome;
use super::pods::is_subject;
use super::requests::{is_refused, resource_of};
use super::width::{length, printable};

/// Controllers whose turns evict pods.
const EVICTION: [&str; 2] = ["taint-eviction-controller", "device-taint-eviction-controller"];

/// What it is, who did it, how it ended, and how much is explained; in as few lines as possible.
pub(super) fn head(builder: &Builder<'_>, width: usize, now: i128) -> Vec<String> {
    let mut parts = parts(builder, now);
    parts.push(explained(builder.trace));
    joined(parts, width)
}

/// The same without how much is explained.
pub(super) fn short(builder: &Builder<'_>, width: usize, now: i128) -> Vec<String> {
    joined(parts(builder, now), width)
}

/// How much of the critical path is explained.
pub(super) fn explained(trace: &Trace) -> String {
    let covered = (trace.summary.covered * 1000.0 + 0.5) as u64;
    format!("{}.{} % explained", covered / 10, covered % 10)
}

/// What it is, who did it, how it ended.
fn parts(builder: &Builder<'_>, now: i128) -> Vec<String> {
    let trace = builder.trace;
    let mut parts = vec![trace.title()];
    if let Some(root) = builder.root() {
        let write = trace.spans.iter().find(|span| span.stage == "write");
        let verb = match (special(root), write) {
            (_, Some(write)) if is_refused(root) => write.name.clone(),
            (Some(what), _) => event_of(builder, pod_of(builder, root), what),
            (None, Some(write)) => change(builder, write),
            (None, None) if is_refused(root) => method(root),
            (None, None) => "seen".to_owned(),
        };
        let (verb, who) = match root.stage.as_str() {
            "request" => (verb, names::program(root)),
            "reconcile" => (verb, root.name.as_str()),
            "evicted" => (event(builder, root, "evicted"), root.node.as_str()),
            "exit" => (event(builder, root, "container ended"), ""),
            "status-report" => (event(builder, root, "changed"), root.node.as_str()),
            _ => (verb, ""),
        };
        let by = if who.is_empty() { String::new() } else { format!(" by {who}") };
        let passed = u64::try_from(now - trace.began()).unwrap_or_default();
        parts.push(format!("{verb}{by} {} ago", age(passed)));
    }
    parts.push(outcome(builder));
    parts
}

/// Parts in lines that are not longer than `width` if they allow it.
fn joined(parts: Vec<String>, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for part in parts {
        if line.is_empty() {
            line = part;
        } else if length(&line) + 3 + length(&part) > width {
            lines.push(std::mem::replace(&mut line, format!("  {part}")));
        } else {
            line.push_str("   ");
            line.push_str(&part);
        }
    }
    lines.push(line);
    lines.iter().map(|line| printable(line)).collect()
}

/// What was done: with the object itself, or with another one.
fn change(builder: &Builder<'_>, first: &Span) -> String {
    let trace = builder.trace;
    let object = |span: &Span| span.object.and_then(|index| trace.objects.get(index));
    let is_subject = |span: &&Span| {
        let subject = trace.object.as_ref();
        let is_other = |subject: &Subject| {
            object(span)
                .is_some_and(|object| object.resource != subject.resource || object.name != subject.name)
        };
        !subject.is_some_and(is_other)
    };
    let own = trace.spans.iter().filter(|span| span.stage == "write").find(is_subject);
    match (own, object(first)) {
        (Some(own), _) if own.id == first.id || own.name == "create" => past(&own.name).to_owned(),
        (_, Some(other)) => format!("{} {}", names::object(other), past(&first.name)),
        (_, None) => past(&first.name).to_owned(),
    }
}

/// What happened on a node: to the object itself, or to another one.
fn event(builder: &Builder<'_>, root: &Span, what: &str) -> String {
    let trace = builder.trace;
    event_of(builder, root.object.and_then(|index| trace.objects.get(index)), what)
}

fn event_of(builder: &Builder<'_>, object: Option<&Object>, what: &str) -> String {
    match object.filter(|object| !is_subject(builder.trace, object)) {
        Some(other) => format!("{} {what}", names::object(other)),
        None => what.to_owned(),
    }
}

/// What a request or a control loop does whose writes are called otherwise: evictions delete, scales update.
fn special(root: &Span) -> Option<&'static str> {
    match root.stage.as_str() {
        "request" => {
            let (method, path) = root.name.split_once(' ')?;
            match resource_of(path).rsplit_once('/')?.1 {
                "eviction" if method == "POST" => Some("evicted"),
                "scale" if method != "GET" => Some("scaled"),
                _ => None,
            }
        }
        "reconcile" if EVICTION.contains(&root.name.as_str()) => Some("evicted"),
        _ => None,
    }
}

/// What an eviction or a scale is about: the pod that is deleted, else what is written first.
fn pod_of<'a>(builder: &Builder<'a>, root: &Span) -> Option<&'a Object> {
    let writes = || builder.trace.spans.iter().filter(|span| span.stage == "write");
    let object = |span: &Span| span.object.and_then(|index| builder.trace.objects.get(index));
    let deleted = || {
        let deletes = writes().filter(|span| span.name == "delete");
        deletes.filter_map(object).find(|object| object.resource == "pods")
    };
    let is_eviction = special(root) == Some("evicted");
    deleted().filter(|_| is_eviction).or_else(|| writes().find_map(object))
}

/// What a request that was refused wanted.
fn method(root: &Span) -> String {
    let (method, path) = root.name.split_once(' ').unwrap_or((root.name.as_str(), ""));
    format!("{method} {}", resource_of(path)).trim_end().to_owned()
}

fn past(verb: &str) -> &str {
    match verb {
        "create" => "created",
        "delete" => "deleted",
        "update" => "updated",
        "patch" => "patched",
        "apply" => "applied",
        "bind" => "bound",
        other => other,
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::Summary;
    use super::*;

    pub(in super::super) fn object(resource: &str, name: &str) -> Object {
        Object { resource: resource.to_owned(), name: name.to_owned(), ..Object::default() }
    }

    pub(in super::super) fn span(stage: &str, name: &str, object: usize) -> Span {
        let id = format!("{stage} {name} {object}");
        let (stage, name) = (stage.to_owned(), name.to_owned());
        Span { id, stage, name, object: Some(object), end: Some(1), ..Span::default() }
    }

    /// A Deployment with two pods, of which so many became ready.
    pub(in super::super) fn web(state: &str, ready: usize) -> Trace {
        let subject =
            Subject { resource: "deployments.apps".to_owned(), name: "web".to_owned(), replicas: Some(5) };
        let mut spans =
            vec![span("write", "create", 0), span("write", "create", 1), span("write", "create", 2)];
        spans.extend((1..=ready).map(|pod| span("ready", "", pod)));
        Trace {
            object: Some(subject),
            state: state.to_owned(),
            objects: vec![object("deployments.apps", "web"), object("pods", "a"), object("pods", "b")],
            spans,
            summary: Summary { total: 409_000_000, covered: 1.0 },
            ..Trace::default()
        }
    }

    #[test]
    fn evictions_name_the_pod_and_the_node() {
        let mut trace = web("failed", 0);
        let evicted = Span { node: "n1".to_owned(), ..span("evicted", "", 1) };
        trace.spans = vec![evicted, span("write", "patch", 1)];
        let first =
            |trace: &Trace| head(&Builder::new(trace, false), 100, trace.began() + 2_100_000_000).remove(0);
        assert!(
            first(&trace).starts_with("deployment/web   pod/a evicted by n1 2.1 s ago"),
            "{}",
            first(&trace)
        );
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
        assert!(
            first(&trace).starts_with("pod/a   evicted by n1 2.1 s ago   failed after"),
            "{}",
            first(&trace)
        );
    }

    #[test]
    fn changes_of_others_name_them() {
        let mut trace = web("ready", 0);
        let said = |trace: &Trace| change(&Builder::new(trace, false), &trace.spans[0]);
        assert_eq!(said(&trace), "created");
        trace.spans = vec![span("write", "delete", 1), span("write", "update", 0)];
        assert_eq!(said(&trace), "pod/a deleted");
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "b".to_owned(), replicas: None });
        trace.spans = vec![span("write", "patch", 0), span("write", "create", 2)];
        assert_eq!(said(&trace), "created", "a pod is created because its Deployment changed");
    }

    /// A trace of one request.
    fn request(name: &str, code: u16, writes: Vec<Span>) -> Trace {
        let mut trace = web("ready", 0);
        let root = Span { code, text: "admin\nkubectl/v1".to_owned(), ..span("request", name, 0) };
        trace.spans = vec![Span { object: None, ..root }];
        let below = |write: Span| Span { parent: Some(trace.spans[0].id.clone()), ..write };
        let writes: Vec<Span> = writes.into_iter().map(below).collect();
        trace.spans.extend(writes);
        trace
    }

    fn first_line(trace: &Trace) -> String {
        head(&Builder::new(trace, false), 200, trace.began() + 2_100_000_000).remove(0)
    }

    #[test]
    fn refused_requests_are_not_ready() {
        let path = "/apis/apps/v1/namespaces/a/deployments/nope";
        let mut trace = request(&format!("DELETE {path}"), 404, Vec::new());
        trace.object = None;
        let line = first_line(&trace);
        assert!(line.contains("DELETE deployments by kubectl 2.1 s ago   refused: 404 Not Found"), "{line}");
        assert!(Builder::new(&trace, false).rows()[0].failed);
    }

    #[test]
    fn evictions_and_scales_are_called_so() {
        let evict = "POST /api/v1/namespaces/a/pods/a/eviction";
        let writes = || vec![span("write", "update", 0), span("write", "delete", 1)];
        let mut trace = request(evict, 201, writes());
        let line = first_line(&trace);
        assert!(line.starts_with("deployment/web   pod/a evicted by kubectl 2.1 s ago"), "{line}");
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
        let line = first_line(&trace);
        assert!(line.starts_with("pod/a   evicted by kubectl 2.1 s ago"), "{line}");
        trace.spans[0].stage = "reconcile".to_owned();
        trace.spans[0].name = "taint-eviction-controller".to_owned();
        let line = first_line(&trace);
        assert!(line.starts_with("pod/a   evicted by taint-eviction-controller 2.1 s ago"), "{line}");
        let scale = "PATCH /apis/apps/v1/namespaces/a/deployments/web/scale";
        let line = first_line(&request(scale, 200, vec![span("write", "patch", 0)]));
        assert!(line.starts_with("deployment/web   scaled by kubectl 2.1 s ago"), "{line}");
    }
}
