//! Objects that made the scheduler panic. It goes on without them, and tries them again when they change or after a while.

use super::Runner;
use crate::object::Object;
use crate::scheduler::intake::{SOURCES, Source};
use crate::store::Revision;
use coracle_cli::supervise::{Panicked, Subject};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the scheduler is called in metrics and health pages.
pub(super) const TASK: &str = "scheduler";
/// The rest after the first panic; it doubles with each further one.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(300);

struct Resting {
    revision: Revision,
    panics: u32,
    until: Instant,
}

/// The objects that are put aside, by source and name. They outlive the state that they made useless.
#[derive(Default)]
pub(super) struct Aside(HashMap<(Source, String, String), Resting>);

fn key(source: Source, object: &Object) -> (Source, String, String) {
    (source, object.meta.namespace.clone(), object.meta.name.clone())
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is to be left out for now.
    pub(super) fn holds(&self, source: Source, object: &Object, now: Instant) -> bool {
        let resting = self.0.get(&key(source, object));
        resting.is_some_and(|r| r.revision == object.revision && now < r.until)
    }

    fn put(&mut self, source: Source, object: &Object, now: Instant) -> Duration {
        let resting = self.0.entry(key(source, object));
        let resting = resting.or_insert(Resting { revision: 0, panics: 0, until: now });
        let rest = FIRST_REST.saturating_mul(1 << resting.panics.min(20)).min(LONGEST_REST);
        let panics = resting.panics.saturating_add(1);
        *resting = Resting { revision: object.revision, panics, until: now + rest };
        rest
    }

    fn take(&mut self, source: Source, object: &Object) -> bool {
        self.0.remove(&key(source, object)).is_some()
    }

    /// What has rested long enough; it counts as put aside until it is handled.
    fn due(&self, now: Instant) -> Vec<(Source, String, String)> {
        let due = self.0.iter().filter(|(_, resting)| resting.until <= now);
        due.map(|(key, _)| key.clone()).collect()
    }
}

fn subject(source: Source, namespace: &str, name: &str) -> Subject {
    let row = SOURCES.iter().find(|(of, ..)| *of == source);
    Subject::new(row.map_or("objects", |(_, _, plural)| plural), namespace, name)
}

impl Runner {
    /// Leaves an object out from now on. What is known may be half changed by the panic: it is read anew.
    pub(super) fn put_aside(&mut self, source: Source, object: &Arc<Object>, panicked: &Panicked) {
        self.broken = true;
        let rest = self.aside.lock().put(source, object, Instant::now());
        let meta = &object.meta;
        self.supervisor.quarantine(TASK, subject(source, &meta.namespace, &meta.name), panicked);
        let seconds = rest.as_secs();
        let text =
            format!("the scheduler panicked and tries again in {seconds} s or after a change: {panicked}");
        self.writes.warn(source, object, "ReconcilePanicked", text);
    }

    /// An object was handled, or is gone.
    pub(super) fn handled(&mut self, source: Source, object: &Object) {
        if self.aside.lock().take(source, object) {
            let meta = &object.meta;
            self.supervisor.release(TASK, || subject(source, &meta.namespace, &meta.name));
        }
    }

    /// Tries objects again that have rested.
    pub(super) fn try_again(&mut self) {
        let due = self.aside.lock().due(Instant::now());
        for (source, namespace, name) in due {
            let follower = self.followers.iter().find(|follower| follower.source == source);
            let object = follower.and_then(|follower| follower.cache.get(&namespace, &name));
            match object {
                Some(object) => self.set(source, &object, None),
                None => {
                    self.supervisor.release(TASK, || subject(source, &namespace, &name));
                    self.aside.lock().0.remove(&(source, namespace, name));
                }
            }
        }
    }
}
