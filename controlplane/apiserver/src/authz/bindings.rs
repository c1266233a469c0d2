//! The bindings of one kind by whom they name. The index follows the events of the kind's cache: a change costs what changed,
//! not what there is, however often somebody rewrites a binding of theirs.

use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::{Cache, Cursor, Expired};
use coracle_store::Revision;
use parking_lot::{RwLock, RwLockWriteGuard};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The role of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RoleRef {
    /// `ClusterRole` or `Role`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Whom a binding names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// The key of a user. Users and groups are told apart by the first letter.
pub(super) fn user_key(name: &str) -> String {
    format!("u{name}")
}

/// The key of a group.
pub(super) fn group_key(name: &str) -> String {
    format!("g{name}")
}

impl Subject {
    /// The key of those it names; `namespace` is the binding's.
    fn key(&self, namespace: &str) -> Option<String> {
        match self.kind.as_str() {
            "User" => Some(user_key(&self.name)),
            "Group" => Some(group_key(&self.name)),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                Some(user_key(&format!("system:serviceaccount:{namespace}:{}", self.name)))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

/// The roles that a subject is given in one place, by the name of the binding.
pub(super) type Given = Arc<BTreeMap<String, Arc<RoleRef>>>;

/// Namespace and name of a binding; no namespace for one that holds everywhere.
type Name = (String, String);

/// What a binding was like when it was read.
#[derive(Debug, PartialEq)]
struct Known {
    revision: Revision,
    subjects: BTreeSet<Arc<str>>,
}

/// A place in the events of a cache.
struct Following {
    cache: Arc<Cache>,
    cursor: Cursor,
}

impl Following {
    /// The names of the bindings that changed since the last time.
    fn touched(&mut self) -> Result<HashSet<Name>, Expired> {
        let mut touched = HashSet::new();
        loop {
            let events = self.cursor.try_batch()?;
            if events.is_empty() {
                return Ok(touched);
            }
            let metas = events.iter().map(|event| &event.object.meta);
            touched.extend(metas.map(|meta| (meta.namespace.clone(), meta.name.clone())));
        }
    }
}

#[derive(Default)]
struct Index {
    /// By subject and namespace.
    given: HashMap<Arc<str>, BTreeMap<String, Given>>,
    known: HashMap<Name, Known>,
    following: Option<Following>,
}

impl Index {
    /// Whether everything that is in the cache is in here.
    fn is_current(&self, cache: &Arc<Cache>) -> bool {
        let following = self.following.as_ref().filter(|following| Arc::ptr_eq(&following.cache, cache));
        following.is_some_and(|following| following.cursor.position().is_some())
    }

    /// Takes in what changed. Returns how many bindings had to be read.
    fn catch_up(&mut self, cache: &Arc<Cache>) -> usize {
        // Set again at the end: if this panics half-way, the next request compares with all there is.
        let following = self.following.take().filter(|following| Arc::ptr_eq(&following.cache, cache));
        let touched = following.and_then(|mut following| Some((following.touched().ok()?, following)));
        let (read, following) = match touched {
            Some((names, following)) => (self.take_in(cache, &names), following),
            None => self.compare(cache),
        };
        self.following = Some(following);
        read
    }

    /// Looks at some bindings as they are in the cache by now, which may be newer than the event that named them.
    fn take_in(&mut self, cache: &Cache, names: &HashSet<Name>) -> usize {
        let mut read = 0;
        for name in names {
            match cache.get(&name.0, &name.1) {
                Some(object) => read += usize::from(self.set(&object)),
                None => self.remove(name),
            }
        }
        read
    }

    /// Looks at all bindings, and reads those that are new or changed.
    fn compare(&mut self, cache: &Arc<Cache>) -> (usize, Following) {
        let (objects, _, cursor) = cache.list_and_watch(None);
        let there: HashSet<(&str, &str)> =
            objects.iter().map(|object| (&*object.meta.namespace, &*object.meta.name)).collect();
        let gone = self.known.keys().filter(|(namespace, name)| !there.contains(&(&**namespace, &**name)));
        let gone: Vec<Name> = gone.cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        let read = objects.iter().filter(|object| self.set(object)).count();
        (read, Following { cache: cache.clone(), cursor })
    }

    /// Takes in a binding. Whether it had to be read: a revision is written once.
    fn set(&mut self, object: &Object) -> bool {
        let name = (object.meta.namespace.clone(), object.meta.name.clone());
        if self.known.get(&name).is_some_and(|known| known.revision == object.revision) {
            return false;
        }
        self.remove(&name);
        let binding: Binding = object.typed().unwrap_or_default();
        let role = Arc::new(binding.role_ref);
        let subjects = binding.subjects.iter().filter_map(|subject| subject.key(&name.0));
        let subjects: BTreeSet<Arc<str>> = subjects.map(Arc::from).collect();
        for subject in &subjects {
            let places = self.given.entry(subject.clone()).or_default();
            let given = places.entry(name.0.clone()).or_default();
            Arc::make_mut(given).insert(name.1.clone(), role.clone());
        }
        self.known.insert(name, Known { revision: object.revision, subjects });
        true
    }

    fn remove(&mut self, name: &Name) {
        let Some(known) = self.known.remove(name) else { return };
        for subject in &known.subjects {
            let Some(places) = self.given.get_mut(subject) else { continue };
            if let Some(given) = places.get_mut(&name.0) {
                Arc::make_mut(given).remove(&name.1);
                if given.is_empty() {
                    places.remove(&name.0);
                }
            }
            if places.is_empty() {
                self.given.remove(subject);
            }
        }
    }

    fn given(&self, subjects: &[String], namespace: &str) -> Vec<Given> {
        let places = subjects.iter().filter_map(|subject| self.given.get(subject.as_str()));
        places.filter_map(|places| places.get(namespace)).cloned().collect()
    }
}

/// The index, for many who ask at once.
#[derive(Default)]
pub(super) struct Bindings(RwLock<Index>);

impl Bindings {
    /// What the subjects are given in a namespace (empty: everywhere), as of now: whoever wrote a binding and got an answer
    /// is judged with it. The lock is not held while the caller looks at the roles.
    pub(super) fn given(&self, cache: &Arc<Cache>, subjects: &[String], namespace: &str) -> Vec<Given> {
        let index = self.0.read();
        if index.is_current(cache) {
            return index.given(subjects, namespace);
        }
        drop(index);
        let mut index = self.0.write();
        index.catch_up(cache);
        RwLockWriteGuard::downgrade(index).given(subjects, namespace)
    }
}

#[cfg(test)]
mod tests;
