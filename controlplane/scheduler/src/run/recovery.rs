//! Panics of the scheduling loop: the object that caused one is quarantined, reported and tried again.

use super::{Runner, TASK};
use crate::event_handlers::{SOURCES, Source};
use coracle_cli::supervise::{Panicked, Subject};
use coracle_kinds::object::Object;
use std::sync::Arc;
use std::time::Instant;

fn subject(source: Source, namespace: &str, name: &str) -> Subject {
    let row = SOURCES.iter().find(|(of, ..)| *of == source);
    Subject::new(row.map_or("objects", |(_, _, plural)| plural), namespace, name)
}

impl Runner {
    /// Quarantines an object. The state may be inconsistent after the panic, so it is rebuilt.
    pub(super) fn quarantine_object(&mut self, source: Source, object: &Arc<Object>, panicked: &Panicked) {
        self.broken = true;
        let rest = self.quarantine.lock().put(source, object, Instant::now());
        let meta = &object.meta;
        self.supervisor.quarantine(TASK, subject(source, &meta.namespace, &meta.name), panicked);
        let seconds = rest.as_secs();
        let text = format!(
            "the scheduler panicked and tries again in {seconds} s, earlier after a change: {panicked}"
        );
        self.writes.warn(source, object, "ReconcilePanicked", text);
    }

    /// An object was handled.
    pub(super) fn handled(&mut self, source: Source, object: &Object) {
        if self.quarantine.lock().recovered(source, object) {
            let meta = &object.meta;
            self.supervisor.release(TASK, || subject(source, &meta.namespace, &meta.name));
        }
    }

    /// An object is gone.
    pub(super) fn forget(&mut self, source: Source, namespace: &str, name: &str) {
        if self.quarantine.lock().remove(&(source, namespace.to_owned(), name.to_owned())) {
            self.supervisor.release(TASK, || subject(source, namespace, name));
        }
    }

    /// Tries objects again that have rested.
    pub(super) fn try_again(&mut self) {
        if self.quarantine.lock().is_empty() {
            return;
        }
        let due = self.quarantine.lock().due(Instant::now());
        for (source, namespace, name) in due {
            let follower = self.followers.iter().find(|follower| follower.source == source);
            match follower.and_then(|follower| follower.cache.get(&namespace, &name)) {
                Some(object) => self.resync(source, &object),
                None => self.forget(source, &namespace, &name),
            }
        }
    }
}
