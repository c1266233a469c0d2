//! Events about objects: the same one again raises a count instead of making another, many alike become one, and an
//! object that never stops is heard less often.

use super::informer::Name;
use super::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};

/// How many of a kind of event an object may have before they become one.
const ALIKE: usize = 10;
/// How long events count as alike, in seconds.
const ALIKE_SECONDS: i64 = 600;
/// How many events in a row one object may have, and after how many seconds it may have one more.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// How many different events are remembered.
const REMEMBERED: usize = 4096;

/// Normal or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// What happened to which object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// API version of the object's kind.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: String,
    /// Normal or not.
    pub severity: Severity,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

impl Note {
    /// A note about an object.
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

/// What to write for a note.
#[derive(Debug, PartialEq)]
pub enum Write {
    /// A new event, in a namespace.
    Create(String, Value),
    /// A merge patch on an event that is there.
    Bump(Name, Value),
    /// Nothing: too many.
    Drop,
}

struct Known {
    event: Name,
    count: i64,
}

#[derive(Default)]
struct Alike {
    messages: HashSet<String>,
    last: Timestamp,
}

/// Decides what becomes of notes; remembers a bounded number of them.
#[derive(Default)]
pub struct Correlator {
    known: HashMap<Note, Known>,
    order: VecDeque<Note>,
    alike: HashMap<Note, Alike>,
    budget: HashMap<String, (f64, Timestamp)>,
}

impl Correlator {
    /// Decides on one note. `component` is who speaks, `serial` makes the name of a new event unique.
    pub fn decide(&mut self, note: &Note, component: &str, serial: u64, now: Timestamp) -> Write {
        if !self.afford(&note.uid, now) {
            return Write::Drop;
        }
        let (key, note) = self.combined(note, now);
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            let patch =
                json!({"count": known.count, "lastTimestamp": time::seconds(now), "message": note.message});
            return Write::Bump(known.event.clone(), patch);
        }
        let namespace = if note.name.namespace.is_empty() { "default" } else { &note.name.namespace };
        let nanos = u64::try_from(now.as_nanosecond()).unwrap_or(0).wrapping_add(serial);
        let event = Name::new(namespace, &format!("{}.{nanos:x}", note.name.name));
        let body = body(&note, &event, component, now);
        self.remember(key, event);
        Write::Create(namespace.to_owned(), body)
    }

    /// The event was not found or not written: the next one alike is created again.
    pub fn forget(&mut self, note: &Note) {
        self.known.remove(note);
        self.known.remove(&group(note));
    }

    fn afford(&mut self, uid: &str, now: Timestamp) -> bool {
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

    /// What the note is remembered by, and the note to write: its own, or that of all alike.
    fn combined(&mut self, note: &Note, now: Timestamp) -> (Note, Note) {
        if self.alike.len() > REMEMBERED {
            self.alike.clear();
        }
        let group = group(note);
        let alike = self.alike.entry(group.clone()).or_default();
        if now.duration_since(alike.last).as_secs() > ALIKE_SECONDS {
            alike.messages.clear();
        }
        alike.last = now;
        alike.messages.insert(note.message.clone());
        if alike.messages.len() < ALIKE {
            return (note.clone(), note.clone());
        }
        let message = format!("(combined from similar events): {}", note.message);
        (group, Note { message, ..note.clone() })
    }

    fn remember(&mut self, note: Note, event: Name) {
        self.order.push_back(note.clone());
        self.known.insert(note, Known { event, count: 1 });
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// What alike events have in common.
fn group(note: &Note) -> Note {
    Note { message: String::new(), ..note.clone() }
}

fn body(note: &Note, event: &Name, component: &str, now: Timestamp) -> Value {
    let severity = match note.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let at = time::seconds(now);
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "involvedObject": {
            "apiVersion": note.api_version, "kind": note.kind, "name": note.name.name,
            "namespace": note.name.namespace, "uid": note.uid,
        },
        "reason": note.reason, "message": note.message, "type": severity,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;

    fn note(message: &str) -> Note {
        let about = object(json!({"metadata": {"name": "web", "namespace": "d", "uid": "u"}}));
        Note::new(("apps/v1", "ReplicaSet"), &about, Severity::Warning, "FailedCreate", message)
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let Write::Create(namespace, body) = correlator.decide(&note("a"), "c", 0, now) else { panic!() };
        assert_eq!((namespace.as_str(), &body["count"]), ("d", &json!(1)));
        let Write::Bump(name, patch) = correlator.decide(&note("a"), "c", 1, now) else { panic!() };
        assert_eq!((json!(name.name), &patch["count"]), (body["metadata"]["name"].clone(), &json!(2)));
        correlator.forget(&note("a"));
        assert!(matches!(correlator.decide(&note("a"), "c", 2, now), Write::Create(..)));
    }

    #[test]
    fn many_alike_are_combined_and_then_limited() {
        let mut correlator = Correlator::default();
        let now = Timestamp::UNIX_EPOCH;
        let writes: Vec<Write> =
            (0..40).map(|n| correlator.decide(&note(&format!("m{n}")), "c", n, now)).collect();
        let created = writes.iter().filter(|w| matches!(w, Write::Create(..))).count();
        let dropped = writes.iter().filter(|w| matches!(w, Write::Drop)).count();
        assert_eq!(created, ALIKE, "nine of their own and one for the rest");
        assert_eq!(dropped, 15);
        let later = time::after(now, 301);
        assert_ne!(correlator.decide(&note("z"), "c", 99, later), Write::Drop, "the budget comes back");
    }
}
