//! Feeds the caches: one watch on the store, applied in order. When the watch is lost it is resumed where it broke off;
//! when the store has forgotten that place, everything is read again and the differences become events.

use super::{
    cache::{Cache, Event, EventType},
    progress::Progress,
    render::{self, RenderError},
};
use crate::{
    registry::kinds::Kind,
    store::{
        Change, KeyValue, Notice, Revision, Store, StoreError,
        sealed::{provider::is_sealed, refuse_unopened},
    },
};
use futures::{StreamExt, stream::ReadyChunks};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// All keys of objects.
const ROOT: &str = "/registry/";
/// After a start the caches begin this many changes in the past, so that watchers can resume over a restart.
const RESUME: u64 = 1000;
/// Changes applied before watchers are told.
const CHUNK: usize = 64;
/// How long the store may be gone before the next try.
const RETRY: Duration = Duration::from_millis(500);

/// All caches, and the task that fills them.
pub struct Feed {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

struct Shared {
    store: Arc<dyn Store>,
    progress: Arc<Progress>,
    /// By key prefix. No prefix is the beginning of another.
    kinds: RwLock<BTreeMap<String, Fed>>,
    /// Keys that came encrypted, until the feed stands.
    unopened: Mutex<Option<BTreeSet<String>>>,
}

#[derive(Clone)]
struct Fed {
    kind: Arc<Kind>,
    cache: Arc<Cache>,
}

/// What may not happen between two changes of a chunk.
enum Order {
    Register(Arc<Kind>, oneshot::Sender<Result<Arc<Cache>, StoreError>>),
    Remove(String),
}

impl Feed {
    /// Loads the kinds, those that keep their objects themselves, and follows the store from there. Returns when the caches are as new as the store was.
    /// Fails when an object is encrypted that nothing opens.
    pub async fn start(
        store: Arc<dyn Store>,
        kinds: impl IntoIterator<Item = Arc<Kind>>,
    ) -> Result<Self, StoreError> {
        let newest = store.revision().await?;
        let past = store.past(RESUME).await?;
        let (all, revision) = match store.range(ROOT, Some(past.from)).await {
            Err(StoreError::Compacted(_) | StoreError::Future(_)) => store.range(ROOT, None).await?,
            result => result?,
        };
        let unopened = all.iter().filter(|one| is_sealed(&one.value)).map(|one| one.key.clone()).collect();
        let progress = Arc::new(Progress::default());
        let feed = |kind: Arc<Kind>| {
            let cache = Arc::new(Cache::new(progress.clone(), revision));
            (kind.prefix(), Fed { kind, cache })
        };
        let kept = |kind: &Arc<Kind>| kind.stored && kind.stored_as.is_none();
        let kinds = RwLock::new(kinds.into_iter().filter(kept).map(feed).collect());
        let shared = Arc::new(Shared { store, progress, kinds, unopened: Mutex::new(Some(unopened)) });
        shared.load(&all, revision);
        drop(all);
        shared.progress.advance(revision);
        let (orders, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(shared.clone().run(queue));
        let feed = Self { shared, orders, task };
        feed.wait_for(newest).await;
        let unopened = feed.shared.unopened.lock().take().unwrap_or_default();
        refuse_unopened(feed.shared.store.as_ref(), unopened).await?;
        if past.lost > 0 {
            // Watchers may have seen what is gone now: they start over. Of other kinds a crash takes nothing.
            for fed in feed.shared.kinds.read().values().filter(|fed| fed.kind.lazy) {
                fed.cache.forget();
            }
        }
        Ok(feed)
    }

    /// The cache of a kind that is registered.
    pub fn cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.shared.kinds.read().get(&kind.prefix()).map(|fed| fed.cache.clone())
    }

    /// Loads and follows one more kind. A kind that is there already, also in another version, keeps its cache.
    pub async fn register(&self, kind: Arc<Kind>) -> Result<Arc<Cache>, StoreError> {
        let gone = || StoreError::Engine("the feed has stopped".to_owned());
        let (answer, result) = oneshot::channel();
        self.orders.send(Order::Register(kind, answer)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// Forgets a kind. Who holds its cache sees no more changes.
    pub fn remove(&self, kind: &Kind) {
        let _ = self.orders.send(Order::Remove(kind.prefix()));
    }

    /// The revision up to which every change is in the caches.
    pub fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    /// Returns once every change up to the revision is in the caches.
    pub async fn wait_for(&self, revision: Revision) {
        self.shared.progress.wait_for(revision).await;
    }

    /// Stops following and lets go of the store. Dropping does the same a little later.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn run(self: Arc<Self>, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            let error = match self.store.watch(ROOT, self.progress.applied()).await {
                Ok(watch) => self.follow(watch.ready_chunks(CHUNK), &mut orders).await,
                Err(error) => error,
            };
            let result = match error {
                StoreError::Compacted(_) => self.resync().await,
                error => Err(error),
            };
            if let Err(error) = result {
                tracing::warn!(%error, rv = self.progress.applied(), "the watch on the store is lost, will retry");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn follow(
        &self,
        mut watch: ReadyChunks<crate::store::Watch>,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> StoreError {
        loop {
            tokio::select! {
                // What came after an order is not to be seen before it.
                biased;
                order = orders.recv() => match order {
                    Some(Order::Register(kind, answer)) => {
                        let _ = answer.send(self.register(kind).await);
                    }
                    Some(Order::Remove(prefix)) => drop(self.kinds.write().remove(&prefix)),
                    // The feed is dropped and this task about to be.
                    None => return StoreError::Engine("the feed is dropped".to_owned()),
                },
                chunk = watch.next() => {
                    let Some(chunk) = chunk else { return StoreError::Engine("the watch ended".to_owned()) };
                    if let Err(error) = self.apply_all(chunk) {
                        return error;
                    }
                }
            }
        }
    }

    fn apply_all(&self, chunk: Vec<Result<Notice, StoreError>>) -> Result<(), StoreError> {
        let mut touched: Vec<Arc<Cache>> = Vec::new();
        let mut result = Ok(());
        for notice in chunk {
            let revision = match notice {
                Ok(Notice::Change(change)) => {
                    if let Some(cache) = self.apply(&change)
                        && !touched.iter().any(|one| Arc::ptr_eq(one, &cache))
                    {
                        touched.push(cache);
                    }
                    change.revision
                }
                Ok(Notice::Progress(revision)) => revision,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            self.progress.advance(revision);
        }
        for cache in touched {
            cache.announce();
        }
        result
    }

    /// Puts a change into its cache, which is returned; `None` when no kind wants it.
    fn apply(&self, change: &Change) -> Option<Arc<Cache>> {
        if change.value.as_ref().is_some_and(|value| is_sealed(value))
            && let Some(unopened) = self.unopened.lock().as_mut()
        {
            unopened.insert(change.key.clone());
        }
        let (Fed { kind, cache }, key) = self.find(&change.key)?;
        if cache.has(change.revision) {
            return None;
        }
        push(&kind, &cache, key, change.value.as_deref(), change.revision);
        Some(cache)
    }

    fn find<'a>(&self, key: &'a str) -> Option<(Fed, &'a str)> {
        let kinds = self.kinds.read();
        let (prefix, fed) = kinds.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        Some((fed.clone(), key.strip_prefix(prefix.as_str())?))
    }

    async fn register(&self, kind: Arc<Kind>) -> Result<Arc<Cache>, StoreError> {
        let prefix = kind.prefix();
        if let Some(fed) = self.kinds.read().get(&prefix) {
            return Ok(fed.cache.clone());
        }
        // Newer than the feed: changes up to here come by again and are skipped.
        let (all, revision) = self.store.range(&prefix, None).await?;
        let cache = Arc::new(Cache::new(self.progress.clone(), revision));
        load(&kind, &cache, all.iter(), revision);
        self.kinds.write().insert(prefix, Fed { kind, cache: cache.clone() });
        Ok(cache)
    }

    fn load(&self, all: &[KeyValue], revision: Revision) {
        for (prefix, fed) in self.kinds.read().iter() {
            load(&fed.kind, &fed.cache, within(all, prefix), revision);
        }
    }

    /// Reads everything again; what differs from the caches becomes events.
    async fn resync(&self) -> Result<(), StoreError> {
        let (all, revision) = self.store.range(ROOT, None).await?;
        let kinds = self.kinds.read().clone();
        for (prefix, Fed { kind, cache }) in kinds {
            let mut gone = cache.versions();
            let mut changed: Vec<&KeyValue> = within(&all, &prefix)
                .filter(|one| gone.remove(&one.key[prefix.len()..]).is_none_or(|had| had < one.modified))
                .collect();
            changed.sort_by_key(|one| one.modified);
            for one in changed {
                push(&kind, &cache, &one.key[prefix.len()..], Some(&one.value), one.modified);
            }
            for key in gone.keys() {
                push(&kind, &cache, key, None, revision);
            }
            cache.announce();
        }
        self.progress.advance(revision);
        Ok(())
    }
}

/// The sorted keys that have the prefix.
fn within<'a>(all: &'a [KeyValue], prefix: &'a str) -> impl Iterator<Item = &'a KeyValue> {
    let start = all.partition_point(|one| one.key.as_str() < prefix);
    all[start..].iter().take_while(move |one| one.key.starts_with(prefix))
}

fn load<'a>(kind: &Kind, cache: &Cache, all: impl Iterator<Item = &'a KeyValue>, revision: Revision) {
    let objects = all.filter_map(|one| {
        let object = render::object(&kind.fields, &one.value, one.modified);
        object.map(Arc::new).map_err(|error| tracing::error!(key = one.key, %error, "left out")).ok()
    });
    cache.load(objects, revision);
}

fn push(kind: &Kind, cache: &Cache, key: &str, value: Option<&[u8]>, revision: Revision) {
    match event(kind, cache, key, value, revision) {
        Ok(Some(event)) => cache.push(key, event),
        Ok(None) => {}
        Err(error) => tracing::error!(resource = kind.plural, key, rv = revision, %error, "left out"),
    }
}

fn event(
    kind: &Kind,
    cache: &Cache,
    key: &str,
    value: Option<&[u8]>,
    revision: Revision,
) -> Result<Option<Event>, RenderError> {
    let previous = cache.find(key);
    let (what, (object, line)) = match (value, &previous) {
        (Some(value), None) => {
            (EventType::Added, render::event(EventType::Added, &kind.fields, value, revision)?)
        }
        (Some(value), Some(_)) => {
            (EventType::Modified, render::event(EventType::Modified, &kind.fields, value, revision)?)
        }
        (None, Some(previous)) => (EventType::Deleted, render::removal(previous, revision)?),
        (None, None) => return Ok(None),
    };
    Ok(Some(Event { what, object: Arc::new(object), previous, line }))
}

#[cfg(test)]
mod tests;
