//! Quarantine: objects that made a task panic. The task skips them; health pages list them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limit of listed objects, so that many bad objects do not fill the memory.
const MOST: usize = 1000;

/// An object of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The plural name of its kind.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Subject {
    /// An object by the plural name of its kind, its namespace and its name.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.resource, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.resource, self.name),
        }
    }
}

/// The objects, by the task that cannot handle them.
#[derive(Default)]
pub(super) struct Quarantine {
    objects: Mutex<BTreeMap<(Subject, String), String>>,
    /// How many there are, so that asking costs nothing while there are none.
    count: AtomicUsize,
}

impl Quarantine {
    pub(super) fn put(&self, task: &str, subject: Subject, why: String) {
        let mut objects = self.objects.lock();
        let key = (subject, task.to_owned());
        if objects.len() < MOST || objects.contains_key(&key) {
            objects.insert(key, why);
            self.count.store(objects.len(), Ordering::Release);
        }
    }

    pub(super) fn release(&self, task: &str, subject: impl FnOnce() -> Subject) {
        if self.len() == 0 {
            return;
        }
        let mut objects = self.objects.lock();
        if objects.remove(&(subject(), task.to_owned())).is_some() {
            self.count.store(objects.len(), Ordering::Release);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<Quarantined> {
        let objects = self.objects.lock();
        let all = objects.iter().map(|((subject, task), why)| Quarantined {
            subject: subject.clone(),
            task: task.clone(),
            why: why.clone(),
        });
        all.collect()
    }
}

/// An object that a task cannot handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The object.
    pub subject: Subject,
    /// The task.
    pub task: String,
    /// The panic message.
    pub why: String,
}
