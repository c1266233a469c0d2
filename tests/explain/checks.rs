//! What is true of every answer: one tree, times that fit, sums, order.

use crate::world::{outline, spans, uid_of};
use coracle_timeline::{SpanView, TraceView};
use std::collections::{HashMap, HashSet};

/// Times are read one after the other.
const TOLERANCE: u64 = 10_000;
/// Between two processes on one machine: each has measured the difference between its two clocks.
const BETWEEN_PROCESSES: u64 = 1_000_000;
const NOT_RECORDED: &str = "not recorded";
/// What must be explained.
const COVERED: f64 = 0.98;
/// How long the critical path may be between two spans at a time, where nothing waits for a timer and every node is there. Unoptimized
/// programs that start many pods on a few cores take longer to hear of a change.
const LONGEST_GAP: u64 = if cfg!(debug_assertions) { 1_000_000_000 } else { 200_000_000 };
/// How much of the critical path may be between spans, and how much of it in any case: what is over at once has little else.
const BETWEEN_SPANS: f64 = 0.1;
const SOME_GAPS: u64 = LONGEST_GAP / 2;
/// The beginning of the names of pieces in which the worker of a pod was busy with another step, which has a span, and the two that begin
/// like this and are none.
const WAITED: &str = "waiting for ";
const NO_STEPS: [&str; 2] = ["waiting for a timer", "waiting for the next transaction of rules"];

/// Stages that are a part of others: they begin and end within them.
const PARTS: &[(&str, &[&str])] = &[
    ("request", &["authn", "filters", "flow-queue", "authz", "body", "decode", "write", "respond"]),
    (
        "write",
        &["prepare", "mutating", "defaults", "validation", "validating", "encode", "store", "read-back"],
    ),
    ("store", &["store-queue", "store-commit", "store-sync", "publish"]),
    ("reconcile", &["write"]),
    ("attempt", &["filter", "score", "verdict", "write", "bind"]),
    ("volumes", &["volume"]),
    ("image", &["image-queue", "image-resolve", "image-layer", "image-unpack", "image-commit"]),
    ("sandbox", &["sandbox-files", "cgroup", "namespaces", "network"]),
    ("network", &["cni-plugin"]),
    ("container", &["container-config", "oci-bundle", "oci-create", "oci-start", "post-start"]),
    ("sandbox-stop", &["network-remove", "cgroup-remove"]),
];

/// An agent that is killed before it reported the end of these goes on with them after its restart.
const GOES_ON: [&str; 2] = ["pod-start", "terminate"];

/// The first of each of these stages begins after that of the one before it.
const OF_A_POD: &[&str] =
    &["write", "attempt", "seen", "pod-start", "sandbox", "network", "cni-plugin", "oci-start", "ready"];

/// Everything that is true of every tree that is complete, and in which nothing waits for a timer or for a node that is away.
pub fn complete(view: &TraceView) {
    complete_with_waits(view);
    gaps(view);
}

/// Everything that is true of every tree that is complete.
pub fn complete_with_waits(view: &TraceView) {
    one_tree(view);
    times(view);
    critical_path(view);
    assert!(
        view.summary.covered >= COVERED,
        "{:.2} % are explained\n{}",
        view.summary.covered * 1e2,
        outline(view)
    );
}

/// One root, known parents, no id twice.
pub fn one_tree(view: &TraceView) {
    let roots: Vec<&SpanView> = view.spans.iter().filter(|span| span.parent.is_none()).collect();
    assert_eq!(roots.len(), 1, "one root\n{}", outline(view));
    let ids: HashSet<&str> = view.spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), view.spans.len(), "no span twice\n{}", outline(view));
    for span in &view.spans {
        let is_known = span.parent.as_deref().is_none_or(|parent| ids.contains(parent));
        assert!(is_known, "{} has a parent\n{}", span.id, outline(view));
        assert!(span.end.is_none_or(|end| end >= span.start), "{} ends\n{}", span.id, outline(view));
    }
    assert!(view.spans.is_sorted_by_key(|span| span.start), "in order of start\n{}", outline(view));
}

/// Effects begin after their causes, and parts are within what they are a part of.
fn times(view: &TraceView) {
    let by_id: HashMap<&str, &SpanView> = view.spans.iter().map(|span| (span.id.as_str(), span)).collect();
    for span in &view.spans {
        let Some(parent) = span.parent.as_deref().map(|parent| by_id[parent]) else { continue };
        let same_process = span.node == parent.node;
        let tolerance = if same_process { TOLERANCE } else { BETWEEN_PROCESSES };
        let tolerance = tolerance + span.uncertainty + parent.uncertainty;
        let what = || format!("{} {} of {} {}", span.stage, span.id, parent.stage, parent.id);
        // The handshake of a connection is before its first request.
        if !matches!(span.stage.as_str(), "accept" | "tls") {
            assert!(span.start + tolerance >= parent.start, "{} begins before it\n{}", what(), outline(view));
        }
        let is_part =
            PARTS.iter().any(|(of, parts)| *of == parent.stage && parts.contains(&span.stage.as_str()));
        if let (true, Some(end), Some(parents_end)) = (is_part, span.end, parent.end) {
            assert!(end <= parents_end + tolerance, "{} ends after it\n{}", what(), outline(view));
        }
    }
}

/// The pieces of the critical path touch each other and sum up to the total.
fn critical_path(view: &TraceView) {
    let (path, total) = (&view.critical, view.summary.total);
    assert!(!path.is_empty(), "a critical path\n{}", outline(view));
    for pair in path.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "no gap, no overlap\n{}", outline(view));
    }
    assert_eq!(path[0].start, 0, "from the begin\n{}", outline(view));
    assert_eq!(path[path.len() - 1].end, total, "to the end\n{}", outline(view));
    let explained = path.iter().filter(|piece| piece.name != NOT_RECORDED);
    let explained: u64 = explained.map(|piece| piece.end - piece.start).sum();
    let covered = explained as f64 / total as f64;
    assert!((covered - view.summary.covered).abs() < 1e-4, "{covered} is explained\n{}", outline(view));
    let known = |id: &String| view.spans.iter().any(|span| span.id == *id);
    assert!(path.iter().filter_map(|piece| piece.span.as_ref()).all(known), "known spans\n{}", outline(view));
}

/// Time that only has a name, because of the spans before and after it, is short.
fn gaps(view: &TraceView) {
    let is_step = |name: &str| name.starts_with(WAITED) && !NO_STEPS.contains(&name);
    let gaps = view.critical.iter().filter(|piece| piece.span.is_none() && !is_step(&piece.name));
    let gaps: Vec<(u64, &str)> = gaps.map(|gap| (gap.end - gap.start, gap.name.as_str())).collect();
    if let Some((longest, name)) = gaps.iter().max() {
        assert!(*longest <= LONGEST_GAP, "{longest} ns of {name:?}\n{}", outline(view));
    }
    let sum: u64 = gaps.iter().map(|(time, _)| time).sum();
    let most = (view.summary.total as f64 * BETWEEN_SPANS) as u64 + SOME_GAPS;
    assert!(sum <= most, "{sum} ns between spans, want at most {most}: {gaps:?}\n{}", outline(view));
}

/// Every one of these pods was created, scheduled and started in the tree, in this order.
pub fn pods_started<'a>(view: &TraceView, uids: impl IntoIterator<Item = &'a String>) {
    for uid in uids {
        let firsts: Vec<(&str, u64)> = OF_A_POD
            .iter()
            .map(|stage| {
                let of_pod = spans(view, stage).into_iter().filter(|span| uid_of(view, span) == uid);
                let first = of_pod.map(|span| span.start).min();
                (*stage, first.unwrap_or_else(|| panic!("{uid} has no {stage}\n{}", outline(view))))
            })
            .collect();
        for pair in firsts.windows(2) {
            let ((first, earlier), (second, later)) = (pair[0], pair[1]);
            assert!(
                earlier <= later + BETWEEN_PROCESSES,
                "{uid}: {first} at {earlier} before {second} at {later}\n{}",
                outline(view)
            );
        }
        let created = spans(view, "write").into_iter().filter(|span| {
            span.name == "create"
                && uid_of(view, span) == uid
                && view.objects[span.object.unwrap()].resource == "pods"
        });
        assert_eq!(created.count(), 1, "{uid} is created once\n{}", outline(view));
    }
}

/// Every one of these pods was started once, because it was bound.
pub fn starts_follow_bindings<'a>(view: &TraceView, uids: impl IntoIterator<Item = &'a String>) {
    let by_id: HashMap<&str, &SpanView> = view.spans.iter().map(|span| (span.id.as_str(), span)).collect();
    for uid in uids {
        let starts: Vec<&SpanView> =
            spans(view, "pod-start").into_iter().filter(|span| uid_of(view, span) == uid).collect();
        assert_eq!(starts.len(), 1, "{uid} is started once\n{}", outline(view));
        let cause = starts[0]
            .parent
            .as_deref()
            .map(|parent| (by_id[parent].stage.as_str(), by_id[parent].name.as_str()));
        assert_eq!(cause, Some(("write", "bind")), "the start of {uid}\n{}", outline(view));
    }
}

/// What had ended stays as it was in a later answer about the same. Spans move within what the clocks of nodes may be off: those of a
/// node all by the same time, and requests with the connections that nodes made for them.
pub fn kept(before: &TraceView, after: &TraceView) {
    assert_eq!((&before.trace, &before.begin), (&after.trace, &after.begin), "{}", outline(after));
    let by_id: HashMap<&str, &SpanView> = after.spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let all = before.spans.iter().chain(&after.spans);
    let tolerance = BETWEEN_PROCESSES + 2 * all.map(|span| span.uncertainty).max().unwrap_or_default();
    let fits = |was: u64, is: u64| was.abs_diff(is) <= tolerance;
    let is_unfinished = |span: &SpanView| span.flags.iter().any(|flag| flag == "unfinished");
    let mut ended = 0;
    for span in before.spans.iter().filter(|span| !is_unfinished(span)) {
        let Some(end) = span.end else { continue };
        ended += 1;
        let now =
            by_id.get(span.id.as_str()).unwrap_or_else(|| panic!("{span:#?} is lost\n{}", outline(after)));
        let ends = match GOES_ON.contains(&span.stage.as_str()) {
            true => now.end.is_none_or(|now| now + tolerance >= end),
            false => now.end.is_some_and(|now| fits(end, now)),
        };
        assert!(
            now.stage == span.stage && fits(span.start, now.start) && ends,
            "{span:#?} is now {now:#?}\n{}",
            outline(after)
        );
    }
    assert!(ended > 0, "nothing had ended\n{}", outline(before));
}

/// Every one of these pods was seen once, and ready once, whatever happened to its agent.
pub fn told_once<'a>(view: &TraceView, uids: impl IntoIterator<Item = &'a String>) {
    for uid in uids {
        for stage in ["seen", "ready"] {
            let told = spans(view, stage).into_iter().filter(|span| uid_of(view, span) == uid).count();
            assert_eq!(told, 1, "{stage} of {uid}\n{}", outline(view));
        }
    }
}
