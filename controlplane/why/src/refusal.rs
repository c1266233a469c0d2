//! Writes that the server refused, from timelines: of an object that does not exist, and of controllers.

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

#[derive(Debug, PartialEq, Eq, Deserialize)]
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

/// A write, and the timeline that it is in.
#[derive(Debug)]
struct Write<'a> {
    trace: &'a Trace,
    span: &'a Span,
    object: &'a Traced,
}

/// A write that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Such as `update`.
    pub(crate) verb: String,
    /// When it began.
    pub(crate) at: Option<Timestamp>,
    code: u16,
    /// What decided, such as `the admission plugin ResourceQuota`.
    pub(crate) by: Option<String>,
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

    fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let writes = self.spans.iter().filter(|span| span.stage == "write");
        writes.filter_map(move |span| {
            Some(Write { trace: self, span, object: self.objects.get(span.object?)? })
        })
    }
}

impl Write<'_> {
    fn at(&self) -> Option<Timestamp> {
        self.trace.time_of(self.span)
    }

    /// Whether a controller wrote this in a turn for an object, which is named as `namespace/name`.
    fn is_by(&self, controller: &str, name: &str) -> bool {
        let turn = self.trace.spans.iter().find(|span| self.span.parent.as_ref() == Some(&span.id));
        turn.is_some_and(|turn| turn.stage == "reconcile" && turn.name == controller && turn.text == name)
    }

    fn refusal(&self) -> Refusal {
        let (spans, write) = (&self.trace.spans, self.span);
        let mut failed = spans.iter().filter(|span| span.has_failed() && is_below(spans, span, &write.id));
        let decider = failed.find_map(|span| Some((part(&span.stage)?, span.name.as_str())));
        Refusal {
            verb: write.name.clone(),
            at: self.at(),
            code: write.code,
            by: decider.map(|(part, name)| format!("{part} {name}").trim_end().to_owned()),
            plugin: decider.map_or_else(String::new, |(_, name)| name.to_owned()),
            message: write.text.lines().next().unwrap_or_default().to_owned(),
        }
    }
}

impl Refusal {
    /// Such as `with 403 Forbidden by the admission plugin ResourceQuota`.
    pub(crate) fn answer(&self) -> String {
        let reason = StatusCode::from_u16(self.code).ok().and_then(|status| status.canonical_reason());
        let text = format!("with {} {}", self.code, reason.unwrap_or_default());
        let by = self.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let message = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        format!("{}{by}{message}", text.trim_end())
    }
}

fn traces(answer: &Value) -> Vec<Trace> {
    match answer.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().filter_map(|item| Trace::deserialize(item).ok()).collect(),
        None => Trace::deserialize(answer).ok().into_iter().collect(),
    }
}

/// The refusal that timelines end with; none if the last write of the object was stored.
fn read(answer: &Value, resource: &str, object: &ObjectRef) -> Option<Refusal> {
    let all = traces(answer);
    let is_own = |write: &Write<'_>| {
        let written = write.object;
        written.resource == resource && written.namespace == object.namespace && written.name == object.name
    };
    let newest = all.iter().flat_map(Trace::writes).filter(is_own).max_by_key(Write::at)?;
    newest.span.has_failed().then(|| newest.refusal())
}

/// The newest write in turns of a controller for an object that admission refused, and what was to be written, such as
/// `replicasets.apps web-1`; none if something was stored there after that.
fn read_of_controller(answer: &Value, controller: &str, object: &ObjectRef) -> Option<(String, Refusal)> {
    let all = traces(answer);
    let name = format!("{}/{}", object.namespace, object.name);
    let written = all.iter().flat_map(Trace::writes).filter(|write| write.is_by(controller, &name));
    let mut written: Vec<Write<'_>> = written.collect();
    written.sort_by_key(Write::at);
    let last = written.iter().rposition(|write| write.span.has_failed() && write.refusal().by.is_some())?;
    let refused = &written[last];
    if written[last + 1..].iter().any(|later| !later.span.has_failed() && later.object == refused.object) {
        return None;
    }
    Some((format!("{} {}", refused.object.resource, refused.object.name), refused.refusal()))
}

/// The last write of a controller for an object, if admission refused it: what was to be written, and how it was refused.
pub(crate) fn of_controller(
    world: &World,
    resource: &Resource,
    object: &ObjectRef,
    controller: &str,
) -> Option<(String, Refusal)> {
    let trace = world.trace(resource, &object.namespace, &object.name)?;
    read_of_controller(trace, controller, object)
}

/// Says of an object that does not exist that the server refused it, if that was its last change.
pub(crate) fn describe(world: &World, resource: &Resource, object: &ObjectRef) -> Option<String> {
    let trace = world.trace(resource, &object.namespace, &object.name)?;
    let refusal = read(trace, &resource.qualified(), object)?;
    let mut text = format!("; a request to {} it was refused", refusal.verb);
    if let Some(at) = refusal.at.and_then(|at| Timestamp::from_second(at.as_second()).ok()) {
        text.push_str(&format!(" at {at}"));
    }
    let answer = refusal.answer();
    let quotas = match refusal.plugin.as_str() {
        QUOTA => quotas::of_namespace(world, &object.namespace),
        _ => Vec::new(),
    };
    let quotas: String = quotas.iter().map(|quota| format!("; {quota}")).collect();
    Some(format!("{text} {answer}{quotas}"))
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
    fn the_last_write_of_a_controller_decides() {
        let turn = |controller: &str| {
            json!({"id": "turn", "parent": null, "stage": "reconcile", "name": controller, "text": "default/web",
                "object": null, "start": 0, "code": 0, "flags": ["failed"]})
        };
        let write = |id: &str, start: u64, failed: bool| {
            let mut write = span("write", "update", start, failed);
            (write["id"], write["parent"]) = (json!(id), json!("turn"));
            write
        };
        let policy = |id: &str, of: &str| {
            let mut policy = span("validating-policy", "fixed", 5, true);
            (policy["id"], policy["parent"]) = (json!(id), json!(of));
            policy
        };
        let object = ObjectRef::new::<Deployment>("default", "web");
        let of = |spans: Value| read_of_controller(&trace(spans), "deployment-controller", &object);
        let by = turn("deployment-controller");
        let (written, refusal) = of(json!([by, write("a", 1, true), policy("p", "a")])).unwrap();
        assert_eq!(written, "pods x");
        assert_eq!(refusal.answer(), "with 403 Forbidden by the admission policy fixed");
        let later = write("b", 9, false);
        assert_eq!(
            of(json!([by, write("a", 1, true), policy("p", "a"), later])),
            None,
            "it was stored after that"
        );
        assert_eq!(of(json!([by, write("a", 1, true)])), None, "a conflict, or an invalid object");
        let other = turn("replicaset-controller");
        assert_eq!(of(json!([other, write("a", 1, true), policy("p", "a")])), None);
        assert_eq!(of(json!([])), None);
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
