//! Index of role bindings by subject. It is updated from the events of the cache, so that a changed binding does not
//! cause others to be read again.

use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::{Cache, Cursor};
use coracle_kinds::watch::event::Expired;
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

/// Roles granted to a subject in one namespace, by binding name.
pub(super) type GrantedRoles = Arc<BTreeMap<String, Arc<RoleRef>>>;

/// Namespace and name of a binding; no namespace for one that holds everywhere.
type Name = (String, String);

/// An indexed binding.
#[derive(Debug, PartialEq)]
struct IndexedBinding {
    revision: Revision,
    subjects: BTreeSet<Arc<str>>,
}

/// A cursor on a cache.
struct BindingWatch {
    cache: Arc<Cache>,
    cursor: Cursor,
}

impl BindingWatch {
    /// The names of the bindings that changed since the last time.
    fn changed_names(&mut self) -> Result<HashSet<Name>, Expired> {
        let mut changed = HashSet::new();
        loop {
            let events = self.cursor.try_batch()?;
            if events.is_empty() {
                return Ok(changed);
            }
            let metas = events.iter().map(|event| &event.object.meta);
            changed.extend(metas.map(|meta| (meta.namespace.clone(), meta.name.clone())));
        }
    }
}

#[derive(Default)]
struct Index {
    /// By subject and namespace.
    given: HashMap<Arc<str>, BTreeMap<String, GrantedRoles>>,
    known: HashMap<Name, IndexedBinding>,
    watch: Option<BindingWatch>,
}

impl Index {
    /// Whether the index is up to date with the cache.
    fn is_current(&self, cache: &Arc<Cache>) -> bool {
        let watch = self.watch.as_ref().filter(|watch| Arc::ptr_eq(&watch.cache, cache));
        watch.is_some_and(|watch| watch.cursor.position().is_some())
    }

    /// Applies changes of the cache. Returns how many bindings were read.
    fn catch_up(&mut self, cache: &Arc<Cache>) -> usize {
        // Set again at the end: if this panics half-way, the next request compares with all there is.
        let watch = self.watch.take().filter(|watch| Arc::ptr_eq(&watch.cache, cache));
        let changed = watch.and_then(|mut watch| Some((watch.changed_names().ok()?, watch)));
        let (read, watch) = match changed {
            Some((names, watch)) => (self.apply_changes(cache, &names), watch),
            None => self.compare(cache),
        };
        self.watch = Some(watch);
        read
    }

    /// Updates bindings from the cache, which may be newer than the event.
    fn apply_changes(&mut self, cache: &Cache, names: &HashSet<Name>) -> usize {
        let mut read = 0;
        for name in names {
            match cache.get(&name.0, &name.1) {
                Some(object) => read += usize::from(self.set(&object)),
                None => self.remove(name),
            }
        }
        read
    }

    /// Compares all bindings and reads those that are new or changed.
    fn compare(&mut self, cache: &Arc<Cache>) -> (usize, BindingWatch) {
        let (objects, _, cursor) = cache.list_and_watch(None);
        let there: HashSet<(&str, &str)> =
            objects.iter().map(|object| (&*object.meta.namespace, &*object.meta.name)).collect();
        let gone = self.known.keys().filter(|(namespace, name)| !there.contains(&(&**namespace, &**name)));
        let gone: Vec<Name> = gone.cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        let read = objects.iter().filter(|object| self.set(object)).count();
        (read, BindingWatch { cache: cache.clone(), cursor })
    }

    /// Indexes a binding; false if its revision is indexed already.
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
        self.known.insert(name, IndexedBinding { revision: object.revision, subjects });
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

    fn granted_roles(&self, subjects: &[String], namespace: &str) -> Vec<GrantedRoles> {
        let places = subjects.iter().filter_map(|subject| self.given.get(subject.as_str()));
        places.filter_map(|places| places.get(namespace)).cloned().collect()
    }
}

/// The index, behind a lock.
#[derive(Default)]
pub(super) struct Bindings(RwLock<Index>);

impl Bindings {
    /// What the subjects are given in a namespace (empty: everywhere), as of now: whoever wrote a binding and got an answer
    /// is judged with it. The lock is not held while the caller looks at the roles.
    pub(super) fn granted_roles(
        &self,
        cache: &Arc<Cache>,
        subjects: &[String],
        namespace: &str,
    ) -> Vec<GrantedRoles> {
        let index = self.0.read();
        if index.is_current(cache) {
            return index.granted_roles(subjects, namespace);
        }
        drop(index);
        let mut index = self.0.write();
        index.catch_up(cache);
        RwLockWriteGuard::downgrade(index).granted_roles(subjects, namespace)
    }
}

#[cfg(test)]
mod tests;
