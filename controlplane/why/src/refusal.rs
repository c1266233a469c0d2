//! Writes in timelines: the last one of an object that does not exist, and those of controllers that the server refused.

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

/// What the timeline says about an object that does not exist, for the end of a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LastWrite {
    /// Nothing was stored: the server refused it, or was killed before.
    NotStored(String),
    /// The server stored it: the object was there.
    Stored(String),
}

/// The newest write of an object.
#[derive(Debug, PartialEq, Eq)]
enum Newest {
    Refused(Refusal),
    /// A create that a crash of the server cut off.
    CutOff(Option<Timestamp>),
    /// `deletes`: it was a deletion, or the end of one.
    Stored {
        deletes: bool,
        at: Option<Timestamp>,
    },
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
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
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
        let mut failed = spans.iter().filter(|span| span.has("failed") && is_below(spans, span, &write.id));
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

/// The write of the object that timelines end with.
fn read(answer: &Value, resource: &str, object: &ObjectRef) -> Option<Newest> {
    let all = traces(answer);
    let is_own = |write: &Write<'_>| {
        let written = write.object;
        written.resource == resource && written.namespace == object.namespace && written.name == object.name
    };
    let own: Vec<Write<'_>> = all.iter().flat_map(Trace::writes).filter(is_own).collect();
    let newest = own.iter().max_by_key(|write| write.at())?;
    if newest.span.has("failed") {
        return Some(Newest::Refused(newest.refusal()));
    }
    let is_deletion = |write: &Write<'_>| write.span.name == "delete" && !write.span.has("failed");
    // After a deletion, somebody took away the last finalizer.
    let deletes = newest.span.name != "create" && own.iter().any(is_deletion);
    let (at, is_cut_off) = (newest.at(), newest.span.name == "create" && newest.span.has("unfinished"));
    Some(if is_cut_off { Newest::CutOff(at) } else { Newest::Stored { deletes, at } })
}

/// The newest write in turns of a controller for an object that admission refused, and what was to be written, such as
/// `replicasets.apps web-1`; none if something was stored there after that.
fn read_of_controller(answer: &Value, controller: &str, object: &ObjectRef) -> Option<(String, Refusal)> {
    let all = traces(answer);
    let name = format!("{}/{}", object.namespace, object.name);
    let written = all.iter().flat_map(Trace::writes).filter(|write| write.is_by(controller, &name));
    let mut written: Vec<Write<'_>> = written.collect();
    written.sort_by_key(Write::at);
    let last = written.iter().rposition(|write| write.span.has("failed") && write.refusal().by.is_some())?;
    let refused = &written[last];
    if written[last + 1..].iter().any(|later| !later.span.has("failed") && later.object == refused.object) {
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

/// What the timeline of an object that does not exist says about its last write.
pub(crate) fn last_write(world: &World, resource: &Resource, object: &ObjectRef) -> Option<LastWrite> {
    let trace = world.trace(resource, &object.namespace, &object.name)?;
    Some(match read(trace, &resource.qualified(), object)? {
        Newest::Refused(refusal) => LastWrite::NotStored(refused(world, object, &refusal)),
        Newest::CutOff(at) => LastWrite::NotStored(format!(
            "; a request to create it{} was cut off by a crash of the server",
            at_second(at)
        )),
        Newest::Stored { deletes: true, at } => {
            LastWrite::Stored(format!("; it was deleted{}", at_second(at)))
        }
        Newest::Stored { deletes: false, at } => {
            LastWrite::Stored(format!("; it was there, and was written last{}", at_second(at)))
        }
    })
}

/// ` at TIME`, exact to a second.
fn at_second(at: Option<Timestamp>) -> String {
    let at = at.and_then(|at| Timestamp::from_second(at.as_second()).ok());
    at.map_or_else(String::new, |at| format!(" at {at}"))
}

fn refused(world: &World, object: &ObjectRef, refusal: &Refusal) -> String {
    let text = format!("; a request to {} it was refused{}", refusal.verb, at_second(refusal.at));
    let answer = refusal.answer();
    let quotas = match refusal.plugin.as_str() {
        QUOTA => quotas::of_namespace(world, &object.namespace),
        _ => Vec::new(),
    };
    let quotas: String = quotas.iter().map(|quota| format!("; {quota}")).collect();
    format!("{text} {answer}{quotas}")
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

    fn refusal(newest: Option<Newest>) -> Option<Refusal> {
        match newest? {
            Newest::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    fn newest(spans: Value) -> Option<Newest> {
        read(&trace(spans), "pods", &ObjectRef::new::<Pod>("default", "x"))
    }

    fn of(spans: Value) -> Option<Refusal> {
        refusal(newest(spans))
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
        let of_items = |items: Value| refusal(read(&json!({"items": items}), "pods", &object));
        assert!(of_items(json!([stored, newer])).is_some());
        assert_eq!(of_items(json!([newer, stored, later])).map(|found| found.code), Some(403));
        assert_eq!(of(json!([refused])).unwrap().by, None);
        assert_eq!(of(json!([])), None);
    }

    #[test]
    fn a_write_that_was_stored_is_told_with_its_time() {
        let write = |verb: &str, start: u64| span("write", verb, start, false);
        let (created, deleted) = (write("create", 700_000_000), write("delete", 800_000_000));
        let stored = |spans: Value| match newest(spans).unwrap() {
            Newest::Stored { deletes, at } => (deletes, at_second(at)),
            other => panic!("{other:?}"),
        };
        let (earlier, later) = (" at 2026-01-01T11:59:00Z".to_owned(), " at 2026-01-01T11:59:01Z".to_owned());
        assert_eq!(stored(json!([created])), (false, earlier.clone()));
        assert_eq!(stored(json!([created, deleted])), (true, earlier));
        let unheld = write("patch", 1_600_000_000);
        assert_eq!(stored(json!([created, deleted, unheld])), (true, later.clone()));
        let again = write("create", 1_700_000_000);
        assert_eq!(stored(json!([created, deleted, again])), (false, later));
        let mut cut_off = created;
        cut_off["flags"] = json!(["unfinished"]);
        assert!(matches!(newest(json!([cut_off])), Some(Newest::CutOff(Some(_)))), "it may not be stored");
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
        let of = |text: &str, resource: &str, object: &ObjectRef| {
            read(&serde_json::from_str(text).unwrap(), resource, object).unwrap()
        };
        let found = refusal(Some(of(text, "deployments.apps", &object))).unwrap();
        assert_eq!(found.by.as_deref(), Some("the webhook policy.example.com"));
        let ready = include_str!("../../../timeline/fixtures/deployment-ready.json");
        let found = of(ready, "deployments.apps", &object);
        assert!(matches!(found, Newest::Stored { deletes: false, .. }));
        let gone = include_str!("../../../timeline/fixtures/pod-gone.json");
        let found = of(gone, "pods", &ObjectRef::new::<Pod>("default", "web-7d9f8c6b5-2xk4p"));
        assert!(matches!(found, Newest::Stored { deletes: true, .. }));
    }
}
