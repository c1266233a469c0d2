//! The reflector: fills the caches from one watch on the store, in order. A lost watch is resumed at its last revision. When
//! that revision is compacted, everything is listed again and the differences become events.

// Objects that cannot be read.
mod unreadable;
// The caches of a kind, with and without objects whose initializers are pending.
mod cached_kind;

use super::{
    cache::Cache,
    event::{Event, EventType},
    progress::Progress,
    render,
};
use crate::object::decode::{self, DecodeError};
use crate::object::{Meta, Object};
use crate::registry::kinds::Kind;
use cached_kind::CachedKind;
use coracle_cli::causes;
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_store::encryption::provider::is_encrypted;
use coracle_store::encryption::reject_undecryptable;
use coracle_store::{Change, KeyValue, Revision, Store, StoreError, WatchItem};
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
    time::Instant,
};

pub use unreadable::Unreadable;

/// All keys of objects.
const ROOT: &str = "/registry/";
/// After a start the caches begin this many changes in the past, so that watchers can resume over a restart.
const RESUME: u64 = 1000;
/// Changes applied before watchers are notified.
const CHUNK: usize = 64;
/// A watch is opened at most this often. One that was open for longer is resumed at once: its server may only have moved to
/// another member of etcd.
const RETRY: Duration = Duration::from_millis(500);

/// All caches, and the task that fills them.
pub struct Reflector {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
}

struct Shared {
    store: Arc<dyn Store>,
    progress: Arc<Progress>,
    /// By key prefix. No prefix is the beginning of another.
    kinds: RwLock<BTreeMap<String, CachedKind>>,
    /// Keys whose value is encrypted, collected until the start is complete.
    encrypted: Mutex<Option<BTreeSet<String>>>,
    /// Stored objects that cannot be read and are in no cache.
    unreadable: unreadable::UnreadableObjects,
    supervisor: Supervisor,
    /// Whether objects may be uninitialized: then kinds have two caches.
    initializers: bool,
}

/// Name of the task in metrics and on health pages.
const TASK: &str = "store-feed";

/// Commands to the task, executed between two chunks of changes.
enum Command {
    Register(Arc<Kind>, oneshot::Sender<Result<Arc<Cache>, StoreError>>),
    Remove(String),
}

impl Reflector {
    /// Loads the stored kinds and watches the store from there. Returns when the caches have reached the revision that the store
    /// had at the call. Fails when an object is encrypted and no configured key decrypts it.
    pub async fn start(
        store: Arc<dyn Store>,
        kinds: impl IntoIterator<Item = Arc<Kind>>,
    ) -> Result<Self, StoreError> {
        Self::supervised(store, kinds, Supervisor::default(), false).await
    }

    /// The same, with a supervisor that restarts the task and quarantines objects that make it panic. With `initializers`, objects
    /// whose initializers are pending are only in [`Reflector::whole_cache`].
    pub async fn supervised(
        store: Arc<dyn Store>,
        kinds: impl IntoIterator<Item = Arc<Kind>>,
        supervisor: Supervisor,
        initializers: bool,
    ) -> Result<Self, StoreError> {
        let newest = store.revision().await?;
        let past = store.history_start(RESUME).await?;
        let (all, revision) = match store.range(ROOT, Some(past.from)).await {
            Err(StoreError::Compacted(_) | StoreError::Future(_)) => store.range(ROOT, None).await?,
            result => result?,
        };
        let encrypted =
            all.iter().filter(|one| is_encrypted(&one.value)).map(|one| one.key.clone()).collect();
        let progress = Arc::new(Progress::default());
        let with_cache =
            |kind: Arc<Kind>| (kind.prefix(), CachedKind::new(kind, &progress, revision, initializers));
        let kept = |kind: &Arc<Kind>| kind.stored && kind.stored_as.is_none();
        let kinds = RwLock::new(kinds.into_iter().filter(kept).map(with_cache).collect());
        let (encrypted, unreadable) = (Mutex::new(Some(encrypted)), unreadable::UnreadableObjects::default());
        let known = supervisor.clone();
        let shared = Arc::new(Shared {
            store,
            progress,
            kinds,
            encrypted,
            unreadable,
            supervisor: known,
            initializers,
        });
        shared.load(&all, revision);
        drop(all);
        shared.progress.advance(revision);
        let (commands, queue) = mpsc::unbounded_channel();
        let (following, queue) = (shared.clone(), Arc::new(tokio::sync::Mutex::new(queue)));
        let mut again = false;
        let task = supervisor.spawn(TASK, move || {
            let (shared, queue) = (following.clone(), queue.clone());
            let again = std::mem::replace(&mut again, true);
            async move { shared.run(&mut *queue.lock().await, again).await }
        });
        let reflector = Self { shared, commands, task };
        reflector.wait_for(newest).await;
        let encrypted = reflector.shared.encrypted.lock().take().unwrap_or_default();
        reject_undecryptable(reflector.shared.store.as_ref(), encrypted).await?;
        if past.lost > 0 {
            // Watchers may have seen what is gone now: they start over. Of other kinds a crash takes nothing.
            for cached in reflector.shared.kinds.read().values().filter(|cached| cached.kind.lazy) {
                cached.cache.forget();
                if let Some(whole) = &cached.whole {
                    whole.forget();
                }
            }
        }
        Ok(reflector)
    }

    /// The cache of a kind that is registered.
    pub fn cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.shared.kinds.read().get(&kind.prefix()).map(|cached| cached.cache.clone())
    }

    /// The cache of a kind that is registered, with objects whose initializers are pending.
    pub fn whole_cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.shared.kinds.read().get(&kind.prefix()).map(|cached| cached.all().clone())
    }

    /// Loads and follows one more kind. A kind that is there already, also in another version, keeps its cache.
    pub async fn register(&self, kind: Arc<Kind>) -> Result<Arc<Cache>, StoreError> {
        let gone = || StoreError::Stopped;
        let (answer, result) = oneshot::channel();
        self.commands.send(Command::Register(kind, answer)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// Forgets a kind. Who holds its cache sees no more changes.
    pub fn remove(&self, kind: &Kind) {
        let _ = self.commands.send(Command::Remove(kind.prefix()));
    }

    /// Objects of the kinds here that are stored and cannot be read. They are in no cache, and can only be deleted through the API.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.shared.unreadable.all()
    }

    /// The object with this key, if it cannot be read.
    pub fn unreadable_at(&self, key: &str) -> Option<Unreadable> {
        self.shared.unreadable.find(key)
    }

    /// The revision up to which every change is in the caches.
    pub fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    /// Returns once every change up to the revision is in the caches.
    pub async fn wait_for(&self, revision: Revision) {
        self.shared.progress.wait_for(revision).await;
    }

    /// Stops the watch and releases the store. Dropping does the same a little later.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Watches the store forever; after a panic (`again`) it resyncs first.
    async fn run(&self, commands: &mut mpsc::UnboundedReceiver<Command>, mut again: bool) {
        loop {
            let begun = Instant::now();
            let result = if again {
                self.resync().await
            } else {
                let error = match self.store.watch(ROOT, self.progress.applied()).await {
                    Ok(watch) => self.follow(watch.ready_chunks(CHUNK), commands).await,
                    Err(error) => error,
                };
                match error {
                    StoreError::Compacted(_) => self.resync().await,
                    error => Err(error),
                }
            };
            again &= result.is_err();
            if let Err(error) = result {
                tracing::warn!(error = %causes::chain(&error), rv = self.progress.applied(), "the watch on the store is lost, will retry");
                tokio::time::sleep_until(begun + RETRY).await;
            }
        }
    }

    async fn follow(
        &self,
        mut watch: ReadyChunks<coracle_store::Watch>,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> StoreError {
        loop {
            tokio::select! {
                // Changes that came after a command must not be applied before it.
                biased;
                command = commands.recv() => match command {
                    Some(Command::Register(kind, answer)) => {
                        let _ = answer.send(self.register(kind).await);
                    }
                    Some(Command::Remove(prefix)) => {
                        self.kinds.write().remove(&prefix);
                        self.unreadable.retain(|key| !key.starts_with(&prefix));
                    }
                    // The reflector is dropped and this task about to be.
                    None => return StoreError::Stopped,
                },
                chunk = watch.next() => {
                    let Some(chunk) = chunk else { return StoreError::Ended };
                    if let Err(error) = self.apply_all(chunk) {
                        return error;
                    }
                }
            }
        }
    }

    fn apply_all(&self, chunk: Vec<Result<WatchItem, StoreError>>) -> Result<(), StoreError> {
        let mut touched: Vec<CachedKind> = Vec::new();
        let mut result = Ok(());
        for notice in chunk {
            let revision = match notice {
                Ok(WatchItem::Change(change)) => {
                    if let Some(cached) = self.apply(&change)
                        && !touched.iter().any(|one| Arc::ptr_eq(&one.cache, &cached.cache))
                    {
                        touched.push(cached);
                    }
                    change.revision
                }
                Ok(WatchItem::Progress(revision)) => revision,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            self.progress.advance(revision);
        }
        for cached in touched {
            cached.announce();
        }
        result
    }

    /// Puts a change into the caches of its kind, which are returned; `None` when no kind wants it.
    fn apply(&self, change: &Change) -> Option<CachedKind> {
        if change.value.as_ref().is_some_and(|value| is_encrypted(value))
            && let Some(encrypted) = self.encrypted.lock().as_mut()
        {
            encrypted.insert(change.key.clone());
        }
        let (cached, key) = self.find(&change.key)?;
        let all = cached.all();
        if all.has(change.revision) {
            return None;
        }
        if let Some(event) = self.event(&cached.kind, all, key, change.value.as_deref(), change.revision) {
            cached.push(key, event);
        }
        Some(cached)
    }

    fn find<'a>(&self, key: &'a str) -> Option<(CachedKind, &'a str)> {
        let kinds = self.kinds.read();
        let (prefix, cached) = kinds.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        Some((cached.clone(), key.strip_prefix(prefix.as_str())?))
    }

    async fn register(&self, kind: Arc<Kind>) -> Result<Arc<Cache>, StoreError> {
        let prefix = kind.prefix();
        if let Some(cached) = self.kinds.read().get(&prefix) {
            return Ok(cached.cache.clone());
        }
        // Newer than the reflector: changes up to here come by again and are skipped.
        let (all, revision) = self.store.range(&prefix, None).await?;
        let cached = CachedKind::new(kind, &self.progress, revision, self.initializers);
        self.load_kind(&cached, all.iter(), revision);
        let cache = cached.cache.clone();
        self.kinds.write().insert(prefix, cached);
        Ok(cache)
    }

    fn load(&self, all: &[KeyValue], revision: Revision) {
        for (prefix, cached) in self.kinds.read().iter() {
            self.load_kind(cached, within(all, prefix), revision);
        }
    }

    /// Reads everything again; what differs from the caches becomes events.
    async fn resync(&self) -> Result<(), StoreError> {
        let (all, revision) = self.store.range(ROOT, None).await?;
        let kinds = self.kinds.read().clone();
        for (prefix, cached) in kinds {
            let (kind, cache) = (&cached.kind, cached.all());
            let mut gone = cache.versions();
            let mut changed: Vec<&KeyValue> = within(&all, &prefix)
                .filter(|one| gone.remove(&one.key[prefix.len()..]).is_none_or(|had| had < one.modified))
                .collect();
            changed.sort_by_key(|one| one.modified);
            // When a key was removed is not known. All removals get the revision of the range, which a change may have too,
            // so a list between them would keep a removed object, and its watch would not tell of the removal.
            let changed =
                changed.into_iter().map(|one| (&one.key[prefix.len()..], Some(&one.value[..]), one.modified));
            let removed = gone.keys().map(|key| (&**key, None, revision));
            let events = changed.chain(removed).filter_map(|(key, value, revision)| {
                let event = self.event(kind, cache, key, value, revision)?;
                Some((Box::<str>::from(key), event))
            });
            cached.push_all(events.collect());
            cached.announce();
        }
        self.unreadable.retain(|key| all.binary_search_by(|one| one.key.as_str().cmp(key)).is_ok());
        self.progress.advance(revision);
        Ok(())
    }

    /// Fills a cache. What cannot be read is left out and noted.
    fn load_kind<'a>(
        &self,
        cached: &CachedKind,
        all: impl Iterator<Item = &'a KeyValue>,
        revision: Revision,
    ) {
        let (kind, prefix) = (&cached.kind, cached.kind.prefix());
        let objects = all.filter_map(|one| {
            let key = &one.key[prefix.len()..];
            let read = || {
                decode::object(&kind.fields, &one.value, one.modified).and_then(|object| named(object, key))
            };
            match self.supervisor.isolate_sync(TASK, || subject(kind, key), read).ok()? {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    self.unreadable.insert(one.key.clone(), one.modified, Some(&one.value), &error);
                    None
                }
            }
        });
        cached.load(objects, revision);
    }

    /// One change as an event for a cache, if it is one. An object that can no longer be read is gone for those who read
    /// the cache.
    fn event(
        &self,
        kind: &Kind,
        cache: &Cache,
        key: &str,
        value: Option<&[u8]>,
        revision: Revision,
    ) -> Option<Event> {
        let read = || event(kind, cache, key, value, revision);
        match self.supervisor.isolate_sync(TASK, || subject(kind, key), read) {
            Err(_) => event_of_loss(cache, key, revision),
            Ok(Ok(event)) => {
                self.unreadable.forget(|| format!("{}{key}", kind.prefix()));
                event
            }
            Ok(Err(error)) => {
                self.unreadable.insert(format!("{}{key}", kind.prefix()), revision, value, &error);
                event_of_loss(cache, key, revision)
            }
        }
    }
}

/// The sorted keys that have the prefix.
fn within<'a>(all: &'a [KeyValue], prefix: &'a str) -> impl Iterator<Item = &'a KeyValue> {
    let start = all.partition_point(|one| one.key.as_str() < prefix);
    all[start..].iter().take_while(move |one| one.key.starts_with(prefix))
}

/// The object behind a key below its kind's prefix.
fn subject(kind: &Kind, key: &str) -> Subject {
    let (namespace, name) = key.rsplit_once('/').unwrap_or(("", key));
    Subject::new(&kind.plural, namespace, name)
}

fn event(
    kind: &Kind,
    cache: &Cache,
    key: &str,
    value: Option<&[u8]>,
    revision: Revision,
) -> Result<Option<Event>, DecodeError> {
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
    let object = Arc::new(named(object, key)?);
    Ok(Some(Event { what, object, previous, line }))
}

/// The removal of the object that a cache has and the store has no longer in a form that can be read.
fn event_of_loss(cache: &Cache, key: &str, revision: Revision) -> Option<Event> {
    let previous = cache.find(key)?;
    let (object, line) = render::removal(&previous, revision).ok()?;
    Some(Event { what: EventType::Deleted, object: Arc::new(object), previous: Some(previous), line })
}

/// The object, if its metadata says the name that its key says: caches, locks and deletion go by either.
fn named(object: Object, key: &str) -> Result<Object, DecodeError> {
    let Meta { namespace, name, .. } = &object.meta;
    let same = match key.split_once('/') {
        Some((of, own)) => of == namespace && own == name,
        None => namespace.is_empty() && key == name,
    };
    if same {
        Ok(object)
    } else {
        Err(DecodeError::Misplaced { namespace: namespace.clone(), name: name.clone() })
    }
}

#[cfg(test)]
mod tests;
