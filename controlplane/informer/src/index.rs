//! Objects by something other than their name, parsed once per change. An index is brought up to date by the one who
//! asks, so that it shows what was written before the question.

use super::informer::Name;
use super::pod::{Pod, controller_of};
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::{Cache, Cursor};
use coracle_kinds::watch::event::EventType;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which an index is updated without a query.
const KEEP_UP: Duration = Duration::from_millis(250);
/// What the one index that reads objects is called, and what it reads.
const INDEX: &str = "pod-index";
const INDEXED: &str = "pods";

/// Objects of a kind, read as `V`, by keys that each object has.
pub struct Index<V> {
    cache: Arc<Cache>,
    read: fn(&Arc<Object>) -> V,
    keys: fn(&V) -> Vec<String>,
    state: Mutex<State<V>>,
    supervisor: Supervisor,
}

struct State<V> {
    cursor: Option<Cursor>,
    next: u64,
    objects: HashMap<Name, (u64, Arc<V>)>,
    keyed: HashMap<String, BTreeMap<u64, Arc<V>>>,
    /// Objects whose reading panicked, with the key of their owner.
    unreadable: HashMap<Name, String>,
}

impl<V> Index<V> {
    /// An index of a cache; `keys` must depend on nothing but the value.
    pub fn new(cache: Arc<Cache>, read: fn(&Arc<Object>) -> V, keys: fn(&V) -> Vec<String>) -> Self {
        let (objects, keyed, unreadable) = (HashMap::new(), HashMap::new(), HashMap::new());
        let state = State { cursor: None, next: 0, objects, keyed, unreadable };
        Self { cache, read, keys, state: Mutex::new(state), supervisor: Supervisor::default() }
    }

    /// All objects with the key, in the order in which they were first seen. Panics when one of them cannot be read: a
    /// controller that did not know of it would replace it, again and again. The turn of its owner ends so, and no other.
    pub fn find(&self, key: &str) -> Vec<Arc<V>> {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        if let Some((name, _)) = state.unreadable.iter().find(|(_, of)| *of == key) {
            let name = name.clone();
            drop(state);
            panic!("{name} cannot be read");
        }
        state.keyed.get(key).map(|found| found.values().cloned().collect()).unwrap_or_default()
    }

    /// The object with this name.
    pub fn get(&self, name: &Name) -> Option<Arc<V>> {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        state.objects.get(name).map(|(_, value)| value.clone())
    }

    /// Takes in what changes although nobody asks: who never does so until the cache has forgotten must read everything
    /// again. An index that was not asked yet stays empty.
    pub async fn keep_up(self: Arc<Self>) {
        let (_, _, mut news) = self.cache.list_and_watch(None);
        loop {
            news.changed().await;
            tokio::time::sleep(KEEP_UP).await;
            let mut state = self.state.lock();
            if state.cursor.is_some() {
                self.catch_up(&mut state);
            }
        }
    }

    fn catch_up(&self, state: &mut State<V>) {
        loop {
            let Some(cursor) = &mut state.cursor else {
                let (objects, _, cursor) = self.cache.list_and_watch(None);
                state.objects.clear();
                state.keyed.clear();
                state.unreadable.clear();
                state.cursor = Some(cursor);
                for object in &objects {
                    self.put(state, object);
                }
                return;
            };
            match cursor.try_batch() {
                Ok(events) if events.is_empty() => return,
                Ok(events) => {
                    for event in &events {
                        match event.what {
                            EventType::Deleted => self.drop(state, &Name::of(&event.object)),
                            _ => self.put(state, &event.object),
                        }
                    }
                }
                Err(_) => state.cursor = None,
            }
        }
    }

    fn put(&self, state: &mut State<V>, object: &Arc<Object>) {
        let name = Name::of(object);
        let subject = || Subject::new(INDEXED, &name.namespace, &name.name);
        let read = || {
            let value = Arc::new((self.read)(object));
            ((self.keys)(&value), value)
        };
        let Ok((keys, value)) = self.supervisor.isolate_sync(INDEX, subject, read) else {
            self.drop(state, &name);
            state.unreadable.insert(name, owner_key(object));
            return;
        };
        let id = match state.objects.get(&name) {
            Some((id, _)) => *id,
            None => {
                state.next += 1;
                state.next
            }
        };
        self.drop(state, &name);
        for key in keys {
            state.keyed.entry(key).or_default().insert(id, value.clone());
        }
        state.objects.insert(name, (id, value));
    }

    fn drop(&self, state: &mut State<V>, name: &Name) {
        if state.unreadable.remove(name).is_some() {
            self.supervisor.release(INDEX, || Subject::new(INDEXED, &name.namespace, &name.name));
        }
        let Some((id, value)) = state.objects.remove(name) else { return };
        for key in (self.keys)(&value) {
            if let Some(found) = state.keyed.get_mut(&key) {
                found.remove(&id);
                if found.is_empty() {
                    state.keyed.remove(&key);
                }
            }
        }
    }
}

/// The key of what a controller owns, and of what has none in a namespace.
fn owner_key(object: &Object) -> String {
    match controller_of(object) {
        Some(owner) => owner.uid.clone(),
        None => format!("orphans/{}", object.meta.namespace),
    }
}

/// An index of objects by their controller.
pub type Owned = Index<Arc<Object>>;

impl Owned {
    /// An index by controller.
    pub fn by_owner(cache: Arc<Cache>) -> Self {
        Self::new(cache, Arc::clone, |object| vec![owner_key(object)])
    }

    /// What a controller owns.
    pub fn of(&self, uid: &str) -> Vec<Arc<Object>> {
        self.find(uid).iter().map(|o| (**o).clone()).collect()
    }

    /// What has no controller in a namespace.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.find(&format!("orphans/{namespace}")).iter().map(|o| (**o).clone()).collect()
    }
}

/// All pods, by controller and by node; one for all controllers.
pub type Pods = Index<Pod>;

impl Pods {
    /// The index of pods.
    pub fn of_cache(cache: Arc<Cache>, supervisor: Supervisor) -> Self {
        let index = Self::new(cache, Pod::read, |pod| {
            let mut keys = vec![owner_key(&pod.object)];
            if !pod.node.is_empty() {
                keys.push(format!("node/{}", pod.node));
            }
            keys
        });
        Self { supervisor, ..index }
    }

    /// The pods of a controller.
    pub fn owned(&self, uid: &str) -> Vec<Arc<Pod>> {
        self.find(uid)
    }

    /// The pods without controller in a namespace.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.find(&format!("orphans/{namespace}"))
    }

    /// The pods bound to a node.
    pub fn on_node(&self, node: &str) -> Vec<Arc<Pod>> {
        self.find(&format!("node/{node}"))
    }
}
