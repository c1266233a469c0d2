//! Quarantine of objects that made the scheduler panic. They are skipped and retried with exponential backoff, because every
//! panic rebuilds the whole state. A change of fields that the scheduler reads shortens the delay. The work queue of the
//! controllers does the same (`informer/src/queue/`).

use crate::event_handlers::{Source, same_for_scheduling};
use coracle_kinds::object::Object;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an object that changed rests after its first panic; doubles with each further panic.
const FIRST_REST_OF_CHANGED: Duration = Duration::from_secs(1);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// How long the panics of an object count that was handled since: it may be changed back, and rest for as long again.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Namespace and name of an object of a source.
type Key = (Source, String, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Skipped until then.
    Resting(Instant),
    /// Retried; quarantined until it is handled.
    Tried,
    /// It was handled; its panics still count.
    Recovered,
}

struct Entry {
    /// As it was when it made the scheduler panic.
    object: Arc<Object>,
    panics: u32,
    since: Instant,
    stage: Stage,
}

impl Entry {
    fn rest(&self, first: Duration) -> Duration {
        first.saturating_mul(1 << self.panics.saturating_sub(1).min(20)).min(LONGEST_REST)
    }
}

/// The quarantined objects. They are kept when the state is rebuilt.
pub(super) struct Quarantine {
    entries: HashMap<Key, Entry>,
    /// How long an object that stays as it is rests after its first panic.
    first_rest: Duration,
}

fn key(source: Source, object: &Object) -> Key {
    (source, object.meta.namespace.clone(), object.meta.name.clone())
}

/// Whether an object is to the scheduler what it was before.
fn is_same(source: Source, before: &Object, after: &Object) -> bool {
    before.revision == after.revision
        || match source {
            Source::Pods => same_for_scheduling(before, after),
            _ => content(before) == content(after),
        }
}

/// All of an object but who wrote it and at which revision; nothing of bytes that cannot be read.
fn content(object: &Object) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(&object.json).ok()?;
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    Some(value)
}

impl Quarantine {
    /// An empty one; `first_rest` doubles with each further panic of an object.
    pub(super) fn new(first_rest: Duration) -> Self {
        Self { entries: HashMap::new(), first_rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an object made the scheduler panic lately.
    pub(super) fn knows(&self, source: Source, object: &Object) -> bool {
        self.entries.get(&key(source, object)).is_some_and(|entry| entry.object.meta.uid == object.meta.uid)
    }

    /// Whether an object is to be left out for now. One that changed rests for less.
    pub(super) fn holds(&mut self, source: Source, object: &Object, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&key(source, object)) else { return false };
        let Stage::Resting(mut until) = entry.stage else { return false };
        if entry.object.meta.uid != object.meta.uid {
            return false;
        }
        if !is_same(source, &entry.object, object) {
            until = until.min(entry.since + entry.rest(FIRST_REST_OF_CHANGED));
            entry.stage = Stage::Resting(until);
        }
        now < until
    }

    /// Quarantines an object. How long it rests.
    pub(super) fn put(&mut self, source: Source, object: &Arc<Object>, now: Instant) -> Duration {
        let key = key(source, object);
        let before = self.entries.get(&key).filter(|entry| entry.object.meta.uid == object.meta.uid);
        let panics = before.map_or(0, |entry| entry.panics).saturating_add(1);
        let mut entry = Entry { object: object.clone(), panics, since: now, stage: Stage::Tried };
        let rest = entry.rest(self.first_rest);
        entry.stage = Stage::Resting(now + rest);
        self.entries.insert(key, entry);
        rest
    }

    /// An object was handled. Whether it was quarantined until now.
    pub(super) fn recovered(&mut self, source: Source, object: &Object) -> bool {
        let key = key(source, object);
        if !self.knows(source, object) {
            // Another one of its name may have been.
            return self.remove(&key);
        }
        let entry = self.entries.get_mut(&key);
        entry.is_some_and(|entry| std::mem::replace(&mut entry.stage, Stage::Recovered) != Stage::Recovered)
    }

    /// An object is gone. Whether it was quarantined until now.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        self.entries.remove(key).is_some_and(|entry| entry.stage != Stage::Recovered)
    }

    /// What has rested long enough. Forgets what has been well for long.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Key> {
        self.entries.retain(|_, entry| entry.stage != Stage::Recovered || now < entry.since + REMEMBERED);
        let due = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| matches!(entry.stage, Stage::Resting(until) if until <= now));
        due.map(|(key, entry)| {
            entry.stage = Stage::Tried;
            key.clone()
        })
        .collect()
    }

    /// When the next object has rested long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.entries.values().filter_map(|entry| match entry.stage {
            Stage::Resting(until) => Some(until),
            Stage::Tried | Stage::Recovered => None,
        });
        due.min()
    }
}

#[cfg(test)]
mod tests;
