//! The lines below the waterfall: what took most of the time, what it waits for.

use super::answer::{Object, Piece, Span, Trace};
use super::names::{self, is_inner, is_scheduling, is_webhook, time_with_unit};
use super::nodes::Builder;
use super::pods::Pods;
use super::width::{printable, wrap};
use std::collections::{BTreeMap, HashMap};

/// As many parts of the critical path are named.
const NAMED: usize = 5;

/// What a piece is called that no span covers.
const NOT_RECORDED: &str = "not recorded";

/// What the critical path consists of, how pods differ, why it does not go on, and what the server notes.
pub(super) fn foot(builder: &Builder<'_>, width: usize) -> Vec<String> {
    let lines = critical_path(builder).into_iter().chain(pods(builder));
    let mut lines: Vec<String> = lines.flat_map(|line| wrap(&printable(&line), width)).collect();
    lines.extend(problems(builder, width));
    lines
}

/// Why it does not go on, and what the server notes.
pub(super) fn problems(builder: &Builder<'_>, width: usize) -> Vec<String> {
    let trace = builder.trace;
    let mut lines = Vec::new();
    if matches!(trace.state.as_str(), "stuck" | "failed") {
        lines.extend(reasons(builder));
    }
    lines.extend(trace.trouble.iter().map(|trouble| trouble.text.clone()));
    lines.extend(hint(trace));
    lines.extend(trace.notes.iter().map(|note| format!("note: {note}")));
    if trace.kept.lost > 0 {
        lines.push(format!("note: {} spans were lost", trace.kept.lost));
    }
    lines.iter().flat_map(|line| wrap(&printable(line), width)).collect()
}

/// What says more about what is stuck; troubles say that themselves.
fn hint(trace: &Trace) -> Option<String> {
    let subject = trace.object.as_ref().filter(|_| trace.state == "stuck" && trace.trouble.is_none())?;
    let is_it = |object: &&Object| object.resource == subject.resource && object.name == subject.name;
    let own = trace.objects.iter().find(is_it);
    // The pod that waits knows more than what made it.
    let waits = trace.objects.iter().find(|object| !object.waits.is_empty() && !object.hidden);
    let object = waits.filter(|_| own.is_none_or(|own| own.waits.is_empty())).or(own)?;
    let namespace =
        if object.namespace.is_empty() { String::new() } else { format!(" -n {}", object.namespace) };
    Some(format!("`coracle why {}{namespace}` says more", names::object(object)))
}

/// The pieces of the critical path, each with what it is counted as.
pub(super) fn pieces<'a>(builder: &Builder<'a>) -> Vec<(String, &'a Piece)> {
    let known: HashMap<&str, &Span> =
        builder.trace.spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let name = |piece: &Piece| match piece.span.as_deref() {
        None => Some(gap(piece)),
        Some(id) => known.get(id).map(|span| group(builder, span)),
    };
    builder.trace.critical.iter().filter_map(|piece| Some((name(piece)?, piece))).collect()
}

fn critical_path(builder: &Builder<'_>) -> Option<String> {
    let (mut sums, mut missing) = (BTreeMap::<String, u64>::new(), 0);
    for (name, piece) in pieces(builder) {
        let taken = piece.end.saturating_sub(piece.start);
        match name == NOT_RECORDED {
            true => missing += taken,
            false => *sums.entry(name).or_default() += taken,
        }
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, taken)| std::cmp::Reverse(*taken));
    let total = builder.trace.summary.total.max(1);
    let mut texts = Vec::new();
    for (name, taken) in sums.iter().take(NAMED) {
        let share = if texts.is_empty() {
            format!(" ({} %)", (taken * 100 + total / 2) / total)
        } else {
            String::new()
        };
        texts.push(format!("{name} {}{share}", time_with_unit(*taken)));
    }
    match sums.get(NAMED..) {
        None | Some([]) => {}
        Some([(_, taken)]) => texts.push(format!("1 other {}", time_with_unit(*taken))),
        Some(others) => {
            let taken = others.iter().map(|(_, taken)| taken).sum::<u64>();
            texts.push(format!("{} others {}", others.len(), time_with_unit(taken)));
        }
    }
    if texts.is_empty() {
        return None;
    }
    let missing =
        if missing > 0 { format!("; {} {NOT_RECORDED}", time_with_unit(missing)) } else { String::new() };
    Some(format!("critical path: {}{missing}", texts.join(", ")))
}

/// What a piece between two spans is counted as.
fn gap(piece: &Piece) -> String {
    for name in ["watch delivery", "work queue", "hand-over"] {
        if piece.name.starts_with(name) {
            return name.to_owned();
        }
    }
    piece.name.clone()
}

/// What a span of the critical path is counted as.
fn group(builder: &Builder<'_>, span: &Span) -> String {
    let name = match span.stage.as_str() {
        "image-backoff" | "crash-backoff" | "unschedulable" | "gated" | "scheduler-backoff"
        | "flow-queue" | "status-held" | "init-run" => None,
        stage if is_webhook(stage) => None,
        stage if stage.starts_with("image") => Some("image"),
        stage if stage.starts_with("container") || stage.starts_with("oci-") || stage == "post-start" => {
            Some("container")
        }
        "probe" => span.name.split(' ').next().filter(|kind| !kind.is_empty()),
        "sandbox" | "sandbox-files" | "cgroup" | "namespaces" | "network" | "cni-plugin" | "policies" => {
            Some("sandbox")
        }
        "volumes" | "volume" => Some("volumes"),
        stage if is_scheduling(stage) => Some("scheduler"),
        "filter" | "score" | "preempt" | "reserve" | "volume-binding" | "bind" | "verdict" => {
            Some("scheduler")
        }
        "store" | "store-queue" | "store-commit" | "store-sync" | "publish" | "read-back" => Some("store"),
        stage if is_inner(stage) || matches!(stage, "request" | "write") => Some("API server"),
        "queued" | "reconcile" => Some("controllers"),
        "rules-programmed" | "service-seen" => Some("service rules"),
        _ => None,
    };
    name.map_or_else(|| names::label(span, &builder.trace.objects).0, str::to_owned)
}

/// How long pods took, and what was different for the slowest.
fn pods(builder: &Builder<'_>) -> Option<String> {
    let times = Pods::of(builder).times();
    let (slowest, others) = times.split_last()?;
    if others.is_empty() {
        return None;
    }
    let middle = times[(times.len() - 1) / 2].0;
    let name = &builder.trace.objects[slowest.1].name;
    let others: Vec<usize> = others.iter().map(|(_, index)| *index).collect();
    let why = difference(builder, slowest.1, &others).map(|why| format!(" ({why})")).unwrap_or_default();
    let (count, middle, longest) = (times.len(), time_with_unit(middle), time_with_unit(slowest.0));
    Some(format!("{count} pods: p50 {middle}, slowest {longest} {name}{why}"))
}

/// The stage in which a pod lost most against the median of others.
fn difference(builder: &Builder<'_>, slowest: usize, others: &[usize]) -> Option<String> {
    const STAGES: &[&str] = &[
        "image",
        "sandbox",
        "container",
        "probe",
        "volume",
        "scheduler-queue",
        "unschedulable",
        "crash-backoff",
        "image-backoff",
        "init-run",
    ];
    let mut sums: HashMap<usize, BTreeMap<String, u64>> = HashMap::new();
    for span in builder.trace.spans.iter().filter(|span| STAGES.contains(&span.stage.as_str())) {
        if let Some(pod) = span.object {
            *sums.entry(pod).or_default().entry(group(builder, span)).or_default() += builder.length(span);
        }
    }
    let of =
        |pod: usize, name: &str| sums.get(&pod).and_then(|sums| sums.get(name)).copied().unwrap_or_default();
    let mut best: Option<(u64, &str, u64, u64)> = None;
    for (name, taken) in sums.get(&slowest)? {
        let mut usual: Vec<u64> = others.iter().map(|&pod| of(pod, name)).collect();
        usual.sort_unstable();
        let usual = usual[usual.len() / 2];
        let more = taken.saturating_sub(usual);
        if more > best.map_or(0, |best| best.0) {
            best = Some((more, name.as_str(), *taken, usual));
        }
    }
    let (more, name, taken, usual) = best?;
    let is_much = more.saturating_mul(4) >= builder.extent || more >= usual;
    is_much.then(|| format!("{name} {}, others {}", time_with_unit(taken), time_with_unit(usual)))
}

/// Why a trace does not go on. Of what a control loop tried again and again only the last is named.
fn reasons(builder: &Builder<'_>) -> Vec<String> {
    let all = &builder.trace.spans;
    let mut found: Vec<(&Span, usize)> = Vec::new();
    for span in all.iter().filter(|span| is_reason(span, all)) {
        let is_again = |known: &Span| {
            let is_same = known.stage == span.stage && known.name == span.name;
            is_same && (span.stage == "reconcile" || known.object == span.object && known.text == span.text)
        };
        match found.iter_mut().find(|(known, _)| is_again(known)) {
            Some((known, count)) => (*known, *count) = (span, *count + 1),
            None => found.push((span, 1)),
        }
    }
    let text = |(span, count): (&Span, usize)| match count {
        1 => reason(builder, span),
        count => format!("{} ({count} times)", reason(builder, span)),
    };
    found.into_iter().map(text).collect()
}

/// Whether a span says why its trace does not go on.
fn is_reason(span: &Span, all: &[Span]) -> bool {
    let waits = |span: &Span| {
        span.end.is_none()
            && (span.stage.ends_with("backoff") || matches!(span.stage.as_str(), "unschedulable" | "gated"))
    };
    if span.text.is_empty() || span.stage == "request" {
        return false;
    }
    // A pod that waits for a node says what the last attempt says.
    let is_repeated =
        span.stage == "attempt" && all.iter().any(|other| other.object == span.object && waits(other));
    // What is refused is tried again under other names.
    let is_same = |other: &Span| other.stage == "write" && other.name == span.name && other.has("failed");
    let is_refused_again =
        span.stage == "write" && all.iter().any(|other| other.start > span.start && is_same(other));
    waits(span) || span.stage == "evicted" || (span.has("failed") && !is_repeated && !is_refused_again)
}

fn reason(builder: &Builder<'_>, span: &Span) -> String {
    let trace = builder.trace;
    let object = span.object.and_then(|index| trace.objects.get(index));
    let object = object.map_or_else(|| trace.title(), names::object);
    let (label, _) = names::label(span, &trace.objects);
    match builder.length(span) {
        0 => format!("{object}: {label}: {}", span.text),
        taken => format!("{object}: {label} {}: {}", time_with_unit(taken), span.text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Subject;
    use super::*;

    /// A ReplicaSet whose pods a quota refuses again and again.
    fn refused() -> Trace {
        let turn = |at: u64| Span {
            id: at.to_string(),
            stage: "reconcile".to_owned(),
            name: "replicaset-controller".to_owned(),
            text: format!("pods \"web-{at}\" is forbidden: exceeded quota"),
            object: Some(0),
            end: Some(0),
            flags: vec!["failed".to_owned()],
            ..Span::default()
        };
        let set = Object {
            resource: "replicasets.apps".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            ..Object::default()
        };
        Trace {
            object: Some(Subject { resource: set.resource.clone(), name: set.name.clone(), replicas: None }),
            state: "stuck".to_owned(),
            objects: vec![set],
            spans: (0..23).map(turn).collect(),
            ..Trace::default()
        }
    }

    #[test]
    fn what_is_refused_again_and_again_is_one_line_and_a_hint() {
        let mut trace = refused();
        let want = [
            "replicaset/web: replicaset-controller: pods \"web-22\" is forbidden: exceeded quota (23 times)",
            "`coracle why replicaset/web -n shop` says more",
        ];
        assert_eq!(foot(&Builder::new(&trace, false), 200), want);
        let pod = Object {
            resource: "pods".to_owned(),
            name: "web-1".to_owned(),
            waits: "waits for n3".to_owned(),
            ..Object::default()
        };
        trace.objects.push(pod);
        let lines = foot(&Builder::new(&trace, false), 200);
        assert_eq!(lines[1], "`coracle why pod/web-1` says more", "the pod knows more");
        trace.state = "ready".to_owned();
        assert!(foot(&Builder::new(&trace, false), 200).is_empty());
    }
}
