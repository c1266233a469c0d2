//! The audit log beside the requests of a timeline.

use crate::world::{World, begin, outline, spans, text};
use coracle_timeline::{SpanView, TraceView, parse_timestamp};
use serde_json::Value;

/// Between the server's clock reads for the log and for the span, usually.
const TOLERANCE: u64 = 1_000_000;
/// The same when the server had to wait for a core between them.
const LIMIT: u64 = 200_000_000;

/// A request as the log has it; times in nanoseconds of unix time.
struct Audited {
    method: &'static str,
    path: String,
    begin: u64,
    end: u64,
    event: Value,
}

/// A request of the tree and when it began, since the begin of the tree.
type Seen<'a> = (&'a SpanView, u64);

/// Every request of the tree is in the log with the same times, and every create and delete of the namespace that the log has since the
/// tree began, except those of `others` and of the server's own parts, is in the tree.
pub fn check(world: &World, view: &TraceView, namespace: &str, is_other: impl Fn(&Value) -> bool) {
    let log = read(world);
    let requests = ended(view);
    let since = begin(view);
    let mut differences = Vec::new();
    for seen in &requests {
        let same = log.iter().filter(|audited| is_same(audited, seen, since));
        let nearest = same.map(|audited| difference(audited, seen, since)).min();
        let nearest =
            nearest.unwrap_or_else(|| panic!("{} is not in the audit log\n{}", seen.0.name, outline(view)));
        differences.push(nearest);
    }
    differences.sort_unstable();
    let median = differences.get(differences.len() / 2).copied().unwrap_or_default();
    assert!(median <= TOLERANCE, "requests are {median} ns from the audit log\n{}", outline(view));
    let last = view.spans.iter().filter_map(|span| span.end).max().unwrap_or_default() + since;
    let written = log.iter().filter(|audited| {
        let object = &audited.event["objectRef"];
        matches!(audited.method, "POST" | "DELETE")
            && object["namespace"] == namespace
            && object["resource"] != "events"
            && object["subresource"] != "token"
            && audited.event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
            // What controllers and scheduler do is in the tree, but not as requests.
            && audited.event["annotations"]["authorization.k8s.io/decision"] == "allow"
            && (since.saturating_sub(TOLERANCE)..last).contains(&audited.begin)
            && !is_other(&audited.event)
    });
    for audited in written {
        let is_there = requests.iter().any(|seen| is_same(audited, seen, since));
        assert!(is_there, "{} {} is not in the tree\n{}", audited.method, audited.path, outline(view));
    }
}

fn is_same(audited: &Audited, seen: &Seen<'_>, since: u64) -> bool {
    let span = seen.0;
    let Some((method, path)) = span.name.split_once(' ') else { return false };
    let path = path.split('?').next().unwrap_or_default();
    // Long paths are cut.
    let cut = span.flags.iter().any(|flag| flag == "truncated");
    let same_path = if cut { audited.path.starts_with(path) } else { audited.path == path };
    method == audited.method && same_path && difference(audited, seen, since) <= LIMIT
}

/// How far the begin or the end of a request is from what the log says.
fn difference(audited: &Audited, (span, begin): &Seen<'_>, since: u64) -> u64 {
    let end = span.end.map_or(0, |end| audited.end.abs_diff(since + end));
    end.max(audited.begin.abs_diff(since + begin))
}

/// Requests that have ended, with their begin. The first one of a connection has its handshake, which the log knows nothing of.
fn ended(view: &TraceView) -> Vec<Seen<'_>> {
    let requests = spans(view, "request").into_iter().filter(|span| span.end.is_some());
    let begin = |span: &SpanView| {
        let parts = view.spans.iter().filter(|part| part.parent.as_ref() == Some(&span.id));
        parts.filter(|part| !matches!(part.stage.as_str(), "accept" | "tls")).map(|part| part.start).min()
    };
    requests.map(|span| (span, begin(span).unwrap_or(span.start))).collect()
}

fn read(world: &World) -> Vec<Audited> {
    let log = std::fs::read_to_string(world.audit_log()).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let complete = events.filter(|event| event["stage"] == "ResponseComplete");
    complete.filter_map(audited).collect()
}

fn audited(event: Value) -> Option<Audited> {
    let time = |field: &str| Some(parse_timestamp(event[field].as_str()?)?.0);
    let method = match event["verb"].as_str()? {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    };
    let path = text(&event["requestURI"]).split('?').next()?.to_owned();
    Some(Audited {
        method,
        path,
        begin: time("requestReceivedTimestamp")?,
        end: time("stageTimestamp")?,
        event,
    })
}
