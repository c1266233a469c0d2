//! The lines above the waterfall: what happened, who did it, how it ended.

use super::answer::{Fate, Object, Span, Subject};
use super::names::{self, age, time_with_unit};
use super::nodes::Builder;
use super::width::{length, printable};
use std::collections::BTreeMap;

/// Pods by index: when they were created and when they were ready first.
pub(super) struct Pods {
    created: BTreeMap<usize, u64>,
    ready: BTreeMap<usize, u64>,
}

impl Pods {
    pub(super) fn of(builder: &Builder<'_>) -> Self {
        let mut pods = Self { created: BTreeMap::new(), ready: BTreeMap::new() };
        for span in &builder.trace.spans {
            let Some(index) = span.object else { continue };
            if builder.trace.objects.get(index).is_none_or(|object| object.resource != "pods") {
                continue;
            }
            match span.stage.as_str() {
                // What was refused is no pod.
                "write" if span.name == "create" && !span.has("failed") => {
                    pods.created.entry(index).or_insert(span.start)
                }
                "ready" => pods.ready.entry(index).or_insert(span.start),
                _ => continue,
            };
        }
        pods
    }

    /// How long each pod took that is ready, the fastest first.
    pub(super) fn times(&self) -> Vec<(u64, usize)> {
        let times = self.created.iter().filter_map(|(index, created)| {
            let ready = self.ready.get(index)?;
            Some((ready.saturating_sub(*created), *index))
        });
        let mut times: Vec<(u64, usize)> = times.collect();
        times.sort_unstable();
        times
    }
}

/// What it is, who did it, how it ended; in as few lines as possible.
pub(super) fn head(builder: &Builder<'_>, width: usize, now: i128) -> Vec<String> {
    let trace = builder.trace;
    let mut parts = vec![trace.title()];
    if let Some(root) = builder.root() {
        let write = trace.spans.iter().find(|span| span.stage == "write");
        let verb = write.map_or_else(|| "seen".to_owned(), |write| change(builder, write));
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
    let covered = (trace.summary.covered * 1000.0 + 0.5) as u64;
    parts.push(format!("{}.{} % explained", covered / 10, covered % 10));
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
    let object = root.object.and_then(|index| trace.objects.get(index));
    let is_subject = |object: &&Object| {
        let subject = trace.object.as_ref();
        subject.is_some_and(|subject| object.resource == subject.resource && object.name == subject.name)
    };
    match object.filter(|object| !is_subject(object)) {
        Some(other) => format!("{} {what}", names::object(other)),
        None => what.to_owned(),
    }
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

fn outcome(builder: &Builder<'_>) -> String {
    let pods = Pods::of(builder);
    let (count, total) = (pods.created.len(), time_with_unit(builder.trace.summary.total));
    let is_ready = |pod: &&usize| pods.ready.contains_key(pod);
    let ready = pods.created.keys().filter(is_ready).count();
    let replicas = builder.trace.object.as_ref().and_then(|object| object.replicas).unwrap_or_default();
    let wanted = if pods.created.is_empty() { 0 } else { count.max(replicas) };
    // What was refused is over.
    let lasting = || if builder.trace.is_open() { format!(" for {total}") } else { String::new() };
    let trouble = builder.trace.trouble.as_ref();
    let in_trouble = trouble.is_some();
    let since = match trouble.map(|trouble| trouble.now) {
        Some(Fate::NotReady) => "not any more",
        Some(Fate::Restarted) => "restarted since",
        Some(Fate::Failed) => "failed since",
        None => "",
    };
    match builder.trace.state.as_str() {
        "ready" if in_trouble && count > 1 => format!("{count} pods ready after {total}, {since}"),
        "ready" if in_trouble => format!("ready after {total}, {since}"),
        "ready" if count > 1 => format!("{count} pods ready after {total}"),
        "stuck" if wanted > 1 => format!("{ready} of {wanted} pods ready, stuck{}", lasting()),
        "running" if in_trouble && wanted > 1 => {
            format!("{ready} of {wanted} pods ready, stuck for {total}")
        }
        "running" if in_trouble => format!("stuck for {total}"),
        "running" if wanted > 1 => format!("{ready} of {wanted} pods ready after {total}"),
        "stuck" => format!("stuck{}", lasting()),
        state => format!("{state} after {total}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Summary, Trace, Trouble};
    use super::*;

    fn object(resource: &str, name: &str) -> Object {
        Object { resource: resource.to_owned(), name: name.to_owned(), ..Object::default() }
    }

    fn span(stage: &str, name: &str, object: usize) -> Span {
        let id = format!("{stage} {name} {object}");
        let (stage, name) = (stage.to_owned(), name.to_owned());
        Span { id, stage, name, object: Some(object), end: Some(1), ..Span::default() }
    }

    /// A Deployment with two pods, of which so many became ready.
    fn web(state: &str, ready: usize) -> Trace {
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

    fn outcome_of(trace: &Trace) -> String {
        outcome(&Builder::new(trace, false))
    }

    #[test]
    fn refused_pods_are_none() {
        let mut trace = web("stuck", 2);
        trace.objects.push(object("pods", "c"));
        let refused = Span { flags: vec!["failed".to_owned()], ..span("write", "create", 3) };
        trace.spans.push(refused);
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready, stuck");
    }

    #[test]
    fn what_does_not_last_is_said() {
        let mut trace = web("ready", 2);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms");
        let text = "pod/a: container web: CrashLoopBackOff".to_owned();
        let trouble = |now| Some(Trouble { text: text.clone(), now });
        trace.trouble = trouble(Fate::Restarted);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms, restarted since");
        trace.trouble = trouble(Fate::NotReady);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms, not any more");
        trace.state = "running".to_owned();
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready, stuck for 409.0 ms");
        trace.trouble = None;
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready after 409.0 ms");
    }

    #[test]
    fn what_runs_to_its_end_is_complete_or_has_failed() {
        let mut trace = web("complete", 2);
        trace.object =
            Some(Subject { resource: "jobs.batch".to_owned(), name: "web".to_owned(), replicas: None });
        assert_eq!(outcome_of(&trace), "complete after 409.0 ms");
        trace.state = "failed".to_owned();
        assert_eq!(outcome_of(&trace), "failed after 409.0 ms");
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
}
