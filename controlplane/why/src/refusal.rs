//! A write that the server refused, from the timeline of an object that does not exist.

use crate::finding::ObjectRef;
use crate::kinds::Resource;
use crate::quotas;
use crate::world::World;
use coracle_proto::time::parse_time;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// The admission plugin of quotas.
const QUOTA: &str = "ResourceQuota";
/// How far the span of a plugin can be below that of its write.
const DEEPEST: usize = 8;

/// What is read of a timeline.
#[derive(Debug, Deserialize)]
struct Trace {
    begin: String,
    objects: Vec<Traced>,
    spans: Vec<Span>,
}

#[derive(Debug, Deserialize)]
struct Traced {
    resource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    id: String,
    parent: Option<String>,
    stage: String,
    name: String,
    text: String,
    object: Option<usize>,
    /// Nanoseconds since the begin of the trace.
    start: i64,
    code: u16,
    flags: Vec<String>,
}

/// The newest write of an object, which failed.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    verb: String,
    at: Option<Timestamp>,
    code: u16,
    /// What decided, such as `the admission plugin ResourceQuota`.
    by: Option<String>,
    plugin: String,
    message: String,
}

impl Span {
    fn has_failed(&self) -> bool {
        self.flags.iter().any(|flag| flag == "failed")
    }
}

/// What of admission refused, from the stage of its span.
fn part(stage: &str) -> Option<&'static str> {
    match stage {
        "mutating-plugin" | "validating-plugin" => Some("the admission plugin"),
        "mutating-webhook" | "validating-webhook" => Some("the webhook"),
        "mutating-policy" | "validating-policy" => Some("the admission policy"),
        _ => None,
    }
}

/// Whether a span is a part of another one.
fn is_below(spans: &[Span], span: &Span, above: &str) -> bool {
    let mut parent = span.parent.as_deref();
    for _ in 0..DEEPEST {
        match parent {
            Some(id) if id == above => return true,
            Some(id) => {
                parent = spans.iter().find(|span| span.id == id).and_then(|span| span.parent.as_deref())
            }
            None => return false,
        }
    }
    false
}

impl Trace {
    fn time_of(&self, span: &Span) -> Option<Timestamp> {
        parse_time(&self.begin)?.checked_add(SignedDuration::from_nanos(span.start)).ok()
    }
}

/// The refusal that timelines end with; none if the last write of the object was stored.
fn read(answer: &Value, resource: &str, object: &ObjectRef) -> Option<Refusal> {
    let all = match answer.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().filter_map(|item| Trace::deserialize(item).ok()).collect(),
        None => vec![Trace::deserialize(answer).ok()?],
    };
    let is_own = |traced: &Traced| {
        traced.resource == resource && traced.namespace == object.namespace && traced.name == object.name
    };
    let writes = all.iter().flat_map(|trace| trace.spans.iter().map(move |span| (trace, span)));
    let own = writes.filter(|(trace, span)| {
        span.stage == "write" && span.object.and_then(|at| trace.objects.get(at)).is_some_and(is_own)
    });
    let (trace, write) = own.max_by_key(|(trace, span)| trace.time_of(span))?;
    if !write.has_failed() {
        return None;
    }
    let mut failed =
        trace.spans.iter().filter(|span| span.has_failed() && is_below(&trace.spans, span, &write.id));
    let decider = failed.find_map(|span| Some((part(&span.stage)?, span.name.as_str())));
    Some(Refusal {
        verb: write.name.clone(),
        at: trace.time_of(write),
        code: write.code,
        by: decider.map(|(part, name)| format!("{part} {name}").trim_end().to_owned()),
        plugin: decider.map_or_else(String::new, |(_, name)| name.to_owned()),
        message: write.text.lines().next().unwrap_or_default().to_owned(),
    })
}

/// Says of an object that does not exist that the server refused it, if that was its last change.
pub(crate) fn describe(world: &World, resource: &Resource, object: &ObjectRef) -> Option<String> {
    let trace = world.trace(resource, &object.namespace, &object.name)?;
    let refusal = read(trace, &resource.qualified(), object)?;
    let reason = StatusCode::from_u16(refusal.code).ok().and_then(|status| status.canonical_reason());
    let mut text = format!("; a request to {} it was refused", refusal.verb);
    if let Some(at) = refusal.at.and_then(|at| Timestamp::from_second(at.as_second()).ok()) {
        text.push_str(&format!(" at {at}"));
    }
    text.push_str(&format!(" with {} {}", refusal.code, reason.unwrap_or_default()));
    let text = text.trim_end();
    let by = refusal.by.map(|by| format!(" by {by}")).unwrap_or_default();
    let message = if refusal.message.is_empty() { String::new() } else { format!(": {}", refusal.message) };
    let quotas = match refusal.plugin.as_str() {
        QUOTA => quotas::of_namespace(world, &object.namespace),
        _ => Vec::new(),
    };
    let quotas: String = quotas.iter().map(|quota| format!("; {quota}")).collect();
    Some(format!("{text}{by}{message}{quotas}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::apps::v1::Deployment;
    use coracle_fields::core::v1::Pod;
    use serde_json::json;

    fn span(stage: &str, name: &str, start: u64, failed: bool) -> Value {
        let flags: &[&str] = if failed { &["failed"] } else { &[] };
        let parent = if stage == "write" { None } else { Some("create") };
        json!({"id": name, "parent": parent, "stage": stage, "name": name, "text": "", "object": 0, "start": start, "code": 403, "flags": flags})
    }

    fn trace(spans: Value) -> Value {
        json!({"begin": "2026-01-01T11:58:59.5Z", "spans": spans,
            "objects": [{"resource": "pods", "namespace": "default", "name": "x"}]})
    }

    fn of(spans: Value) -> Option<Refusal> {
        read(&trace(spans), "pods", &ObjectRef::new::<Pod>("default", "x"))
    }

    #[test]
    fn the_last_write_decides() {
        let refused = span("write", "create", 700_000_000, true);
        let found = of(json!([refused, span("validating-plugin", QUOTA, 700_000_001, true)])).unwrap();
        assert_eq!((found.verb.as_str(), found.code), ("create", 403));
        assert_eq!(found.at.unwrap().to_string(), "2026-01-01T11:59:00.2Z");
        assert_eq!(found.by.as_deref(), Some("the admission plugin ResourceQuota"));
        let later = span("write", "create", 800_000_000, false);
        assert_eq!(of(json!([refused, later])), None, "it was stored after that");
        let (stored, mut newer) = (trace(json!([later])), trace(json!([refused])));
        newer["begin"] = json!("2026-01-01T11:59:30Z");
        let object = ObjectRef::new::<Pod>("default", "x");
        assert!(read(&json!({"items": [stored, newer]}), "pods", &object).is_some());
        assert_eq!(
            read(&json!({"items": [newer, stored, later]}), "pods", &object).map(|found| found.code),
            Some(403)
        );
        assert_eq!(of(json!([refused])).unwrap().by, None);
        assert_eq!(of(json!([])), None);
    }

    #[test]
    fn other_objects_do_not_count() {
        let refused = trace(json!([span("write", "create", 0, true)]));
        let other = ObjectRef::new::<Deployment>("default", "x");
        assert_eq!(read(&refused, "deployments.apps", &other), None);
        assert_eq!(read(&json!({"kind": "Status"}), "pods", &other), None);
    }

    #[test]
    fn the_timelines_of_the_server_are_read() {
        let text = include_str!("../../../timeline/fixtures/deployment-refused.json");
        let object = ObjectRef::new::<Deployment>("default", "web");
        let found = read(&serde_json::from_str(text).unwrap(), "deployments.apps", &object).unwrap();
        assert_eq!(found.by.as_deref(), Some("the webhook policy.example.com"));
        let ready = include_str!("../../../timeline/fixtures/deployment-ready.json");
        assert_eq!(read(&serde_json::from_str(ready).unwrap(), "deployments.apps", &object), None);
    }
}
