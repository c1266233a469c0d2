//! Correlation of Events, as client-go does it: a repeated Event increments a count, many similar ones are aggregated into
//! one, and Events about one object are rate limited.

use super::informer::Name;
use super::time;
use coracle_fields::core::v1::Event;
use coracle_fields::make;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};

/// Number of Events of an object with the same reason from which on they are aggregated.
const AGGREGATION_THRESHOLD: usize = 10;
/// Window of the aggregation, in seconds.
const AGGREGATION_SECONDS: i64 = 600;
/// Rate limit per object: burst, and seconds per further Event.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// Size of the tables.
const REMEMBERED: usize = 4096;

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// An Event to be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventDraft {
    /// API version of the object's kind.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: String,
    /// Type of the Event.
    pub severity: Severity,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
}

impl EventDraft {
    /// An Event about an object.
    pub fn new(
        (api_version, kind): (&str, &str),
        object: &Object,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            name: Name::of(object),
            uid: object.meta.uid.clone(),
            severity,
            reason,
            message: message.into(),
        }
    }
}

/// The write for an Event.
#[derive(Debug, PartialEq)]
pub enum Write {
    /// Create an Event in a namespace.
    Create(String, Value),
    /// Merge-patch an existing Event.
    Increment(Name, Value),
    /// Write nothing: over the rate limit.
    Drop,
}

struct WrittenEvent {
    event: Name,
    count: i64,
}

#[derive(Default)]
struct SimilarEvents {
    messages: HashSet<String>,
    last: Timestamp,
}

/// Decides how Events are written; remembers a bounded number of them.
#[derive(Default)]
pub struct Correlator {
    known: HashMap<EventDraft, WrittenEvent>,
    order: VecDeque<EventDraft>,
    similar: HashMap<EventDraft, SimilarEvents>,
    budget: HashMap<String, (f64, Timestamp)>,
}

impl Correlator {
    /// Decides about one Event. `component` is its source, `serial` makes the name of a new Event unique.
    pub fn decide(&mut self, draft: &EventDraft, component: &str, serial: u64, now: Timestamp) -> Write {
        if !self.allow(&draft.uid, now) {
            return Write::Drop;
        }
        let (key, draft) = self.aggregate(draft, now);
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            let patch = make!(part Event {
                count: known.count,
                last_timestamp: time::seconds(now),
                message: draft.message,
            });
            return Write::Increment(known.event.clone(), patch.into_value());
        }
        let namespace = if draft.name.namespace.is_empty() { "default" } else { &draft.name.namespace };
        let nanos = u64::try_from(now.as_nanosecond()).unwrap_or(0).wrapping_add(serial);
        let event = Name::new(namespace, &format!("{}.{nanos:x}", draft.name.name));
        let body = body(&draft, &event, component, now);
        self.remember(key, event);
        Write::Create(namespace.to_owned(), body)
    }

    /// Forgets an Event that was not found or not written: the next one is created again.
    pub fn forget(&mut self, draft: &EventDraft) {
        self.known.remove(draft);
        self.known.remove(&aggregate_key(draft));
    }

    fn allow(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.budget.len() > REMEMBERED {
            self.budget.clear();
        }
        let (left, last) = self.budget.entry(uid.to_owned()).or_insert((BURST, now));
        let passed = now.duration_since(*last).as_secs_f64().max(0.0);
        *left = (*left + passed / REFILL_SECONDS).min(BURST);
        *last = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }

    /// The key in the table, and the Event to write: the given one, or the aggregate of similar ones.
    fn aggregate(&mut self, draft: &EventDraft, now: Timestamp) -> (EventDraft, EventDraft) {
        if self.similar.len() > REMEMBERED {
            self.similar.clear();
        }
        let group = aggregate_key(draft);
        let similar = self.similar.entry(group.clone()).or_default();
        if now.duration_since(similar.last).as_secs() > AGGREGATION_SECONDS {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(draft.message.clone());
        if similar.messages.len() < AGGREGATION_THRESHOLD {
            return (draft.clone(), draft.clone());
        }
        let message = format!("(combined from similar events): {}", draft.message);
        (group, EventDraft { message, ..draft.clone() })
    }

    fn remember(&mut self, draft: EventDraft, event: Name) {
        self.order.push_back(draft.clone());
        self.known.insert(draft, WrittenEvent { event, count: 1 });
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// The key that similar Events share.
fn aggregate_key(draft: &EventDraft) -> EventDraft {
    EventDraft { message: String::new(), ..draft.clone() }
}

fn body(draft: &EventDraft, event: &Name, component: &str, now: Timestamp) -> Value {
    let severity = match draft.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let at = time::seconds(now);
    let body = make!(Event {
        metadata: { name: &event.name, namespace: &event.namespace },
        involved_object: {
            api_version: &draft.api_version,
            kind: &draft.kind,
            name: &draft.name.name,
            namespace: &draft.name.namespace,
            uid: &draft.uid,
        },
        reason: draft.reason,
        message: &draft.message,
        type_: severity,
        source: { component },
        reporting_component: component,
        reporting_instance: "",
        first_timestamp: &at,
        last_timestamp: &at,
        count: 1,
    });
    body.into_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    fn draft(message: &str) -> EventDraft {
        let about = object(json!({"metadata": {"name": "web", "namespace": "d", "uid": "u"}}));
        EventDraft::new(("apps/v1", "ReplicaSet"), &about, Severity::Warning, "FailedCreate", message)
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let Write::Create(namespace, body) = correlator.decide(&draft("a"), "c", 0, now) else { panic!() };
        assert_eq!((namespace.as_str(), &body["count"]), ("d", &json!(1)));
        let Write::Increment(name, patch) = correlator.decide(&draft("a"), "c", 1, now) else { panic!() };
        assert_eq!((json!(name.name), &patch["count"]), (body["metadata"]["name"].clone(), &json!(2)));
        correlator.forget(&draft("a"));
        assert!(matches!(correlator.decide(&draft("a"), "c", 2, now), Write::Create(..)));
    }

    #[test]
    fn many_alike_are_combined_and_then_limited() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let writes: Vec<Write> =
            (0..40).map(|n| correlator.decide(&draft(&format!("m{n}")), "c", n, now)).collect();
        let created = writes.iter().filter(|w| matches!(w, Write::Create(..))).count();
        let dropped = writes.iter().filter(|w| matches!(w, Write::Drop)).count();
        assert_eq!(created, AGGREGATION_THRESHOLD, "nine of their own and one for the rest");
        assert_eq!(dropped, 15);
        let later = time::after(now, 301);
        assert_ne!(correlator.decide(&draft("z"), "c", 99, later), Write::Drop, "the budget comes back");
    }
}
