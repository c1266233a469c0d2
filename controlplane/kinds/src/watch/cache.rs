//! One kind's objects, its ring of events, and cursors on it.

use super::event::{Event, EventType, Expired};
use super::{progress::Progress, ring::Ring};
use crate::object::{Object, object_key};
use coracle_store::Revision;
use parking_lot::RwLock;
use std::{collections::BTreeMap, ops::Bound, sync::Arc};
use tokio::sync::watch;

/// One kind's objects in key order, and what happened to them lately.
pub struct Cache {
    progress: Arc<Progress>,
    state: RwLock<State>,
    /// The number of the next event; all cursors of the kind wait on it.
    news: watch::Sender<u64>,
}

struct State {
    /// By `namespace/name` or `name`: the order of the keys in the store.
    objects: BTreeMap<Box<str>, Arc<Object>>,
    ring: Ring,
    /// The revision of the newest change, or of the load.
    newest: Revision,
}

impl Cache {
    /// An empty cache whose objects are known as of `revision`.
    pub fn new(progress: Arc<Progress>, revision: Revision) -> Self {
        let state = State { objects: BTreeMap::new(), ring: Ring::new(revision), newest: revision };
        Self { progress, state: RwLock::new(state), news: watch::Sender::new(0) }
    }

    /// The object, if there is one; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(object_key(namespace, name).as_str()).cloned()
    }

    /// All objects, or those of one namespace, in key order.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.snapshot(namespace).0
    }

    /// All objects, or those of one namespace, with the revision they are the state of.
    pub fn snapshot(&self, namespace: Option<&str>) -> (Vec<Arc<Object>>, Revision) {
        let state = self.state.read();
        (state.objects_in(namespace).map(|(_, object)| object.clone()).collect(), self.at(&state))
    }

    /// The objects as they were at an older revision: the second page of a list shows the state of the first.
    pub fn list_at(&self, namespace: Option<&str>, revision: Revision) -> Result<Vec<Arc<Object>>, Expired> {
        let state = self.state.read();
        state.ring.check(revision)?;
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let mut then: BTreeMap<&str, &Arc<Object>> =
            state.objects_in(namespace).map(|(key, object)| (key.as_ref(), object)).collect();
        for entry in state.ring.back_to(revision).filter(|entry| entry.key.starts_with(&prefix)) {
            match &entry.event.previous {
                Some(previous) => then.insert(&entry.key, previous),
                None => then.remove(entry.key.as_ref()),
            };
        }
        Ok(then.into_values().cloned().collect())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The revision of the newest change of this kind.
    pub fn newest(&self) -> Revision {
        self.state.read().newest
    }

    /// The revision up to which everything is in.
    pub fn revision(&self) -> Revision {
        self.at(&self.state.read())
    }

    /// Returns once everything up to the revision is in.
    pub async fn wait_for(&self, revision: Revision) {
        if self.revision() < revision {
            self.progress.wait_for(revision).await;
        }
    }

    /// A cursor on the events after the revision.
    pub fn subscribe(self: &Arc<Self>, after: Revision) -> Result<Cursor, Expired> {
        let news = self.news.subscribe();
        let state = self.state.read();
        state.ring.check(after)?;
        let next = state.ring.first_after(after);
        Ok(Cursor { cache: self.clone(), news, next, after })
    }

    /// The objects with their revision, and a cursor on what comes after them.
    pub fn list_and_watch(self: &Arc<Self>, namespace: Option<&str>) -> (Vec<Arc<Object>>, Revision, Cursor) {
        let news = self.news.subscribe();
        let state = self.state.read();
        let objects = state.objects_in(namespace).map(|(_, object)| object.clone()).collect();
        let (after, next) = (self.at(&state), state.ring.end());
        (objects, after, Cursor { cache: self.clone(), news, next, after })
    }

    // All up to `progress` was put into the caches before it was counted, and no change can come in while the
    // state is held; a change of this kind may be in before it is counted.
    fn at(&self, state: &State) -> Revision {
        state.newest.max(self.progress.applied())
    }

    /// Fills in the objects as of a revision, without events.
    pub(super) fn load(&self, objects: impl IntoIterator<Item = Arc<Object>>, revision: Revision) {
        let mut state = self.state.write();
        state.objects = objects
            .into_iter()
            .map(|object| (object_key(&object.meta.namespace, &object.meta.name).into(), object))
            .collect();
        state.newest = revision;
        state.ring.clear(revision);
    }

    /// Forgets the events so far: who has not read them starts over.
    pub(super) fn forget(&self) {
        let mut state = self.state.write();
        let at = self.at(&state);
        state.ring.clear(at);
    }

    /// Whether a change at the revision is in already.
    pub(super) fn has(&self, revision: Revision) -> bool {
        self.state.read().newest >= revision
    }

    /// The object with this key.
    pub(super) fn find(&self, key: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).cloned()
    }

    /// Every key with the revision of its object.
    pub(super) fn versions(&self) -> BTreeMap<Box<str>, Revision> {
        self.state.read().objects.iter().map(|(key, object)| (key.clone(), object.revision)).collect()
    }

    /// Takes in one change. Cursors hear of it with the next [`Cache::announce`].
    pub fn push(&self, key: &str, event: Event) {
        self.state.write().push(key.into(), event);
    }

    /// Applies changes in the order of their revisions, of which some may be equal. Readers see all of them or none.
    pub(super) fn push_all(&self, events: Vec<(Box<str>, Event)>) {
        let mut state = self.state.write();
        for (key, event) in events {
            state.push(key, event);
        }
    }

    /// Wakes the cursors.
    pub fn announce(&self) {
        let end = self.state.read().ring.end();
        self.news.send_replace(end);
    }
}

impl State {
    fn push(&mut self, key: Box<str>, event: Event) {
        self.newest = self.newest.max(event.object.revision);
        match event.what {
            EventType::Deleted => self.objects.remove(&key),
            _ => self.objects.insert(key.clone(), event.object.clone()),
        };
        self.ring.push(key, Arc::new(event));
    }

    fn objects_in(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Box<str>, &Arc<Object>)> {
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let range = self.objects.range::<str, _>(from);
        range.take_while(move |(key, _)| prefix.is_empty() || key.starts_with(&prefix))
    }
}

/// A place in a kind's events. It costs nothing until it is asked.
pub struct Cursor {
    cache: Arc<Cache>,
    news: watch::Receiver<u64>,
    next: u64,
    /// Events up to here are skipped: a cursor may start at a revision that is still to come.
    after: Revision,
}

/// Events a cursor takes at a time, and bytes of them: whoever takes some and goes no further keeps no more than these.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 64 << 10;

impl Cursor {
    /// The next event. `Expired` when the cursor was too slow and the ring has dropped it; it stays so.
    pub async fn next(&mut self) -> Result<Arc<Event>, Expired> {
        loop {
            if let Some(event) = self.ready(1)?.pop() {
                return Ok(event);
            }
            self.wait().await;
        }
    }

    /// The next events, at least one, and hardly more than fit into an answer's piece.
    pub async fn next_batch(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        loop {
            let events = self.try_batch()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.wait().await;
        }
    }

    /// Waits until there may be new events.
    pub async fn changed(&mut self) {
        self.wait().await;
    }

    /// The next events if there are any now.
    pub fn try_batch(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        self.ready(BATCH)
    }

    /// The revision up to which the cursor has given out everything, which a bookmark may tell; `None` while there
    /// are events to take.
    pub fn position(&self) -> Option<Revision> {
        let state = self.cache.state.read();
        (state.ring.end() == self.next).then(|| self.cache.at(&state).max(self.after))
    }

    fn ready(&mut self, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        // Marked before looking, so that what comes later wakes the next wait.
        self.news.mark_unchanged();
        let (events, next) =
            self.cache.state.read().ring.take(self.next, (limit, BATCH_BYTES), self.after)?;
        self.next = next;
        Ok(events)
    }

    async fn wait(&mut self) {
        // The sender lives in the cache that this cursor holds.
        let _ = self.news.changed().await;
    }
}
