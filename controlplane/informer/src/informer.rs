//! Informers: event handlers on the watch caches, and the keys that they add to work queues. One task per kind calls all
//! handlers of that kind. When changes may have been missed, `on_resync` is called and adds every object again, so that no
//! controller depends on having seen an event.

use super::cause;
use super::pod::controller_of;
use super::queue::Queue;
use super::selector;
use coracle_cli::supervise::{Subject, Supervisor, catch_panic};
pub use coracle_kinds::object::Name;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::event::{Event, EventType};
use coracle_proto::status::qualified;
use coracle_trace::{Cause, Rank, Recorder, caused_by};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A change of an object. Without `old` it was created, without `new` it was deleted.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// State before the change.
    pub old: Option<&'a Arc<Object>>,
    /// State after the change.
    pub new: Option<&'a Arc<Object>>,
}

impl<'a> Change<'a> {
    /// The change of a watch event.
    pub fn of(event: &'a Event) -> Self {
        match event.what {
            EventType::Added => Self { old: None, new: Some(&event.object) },
            EventType::Modified => Self { old: event.previous.as_ref(), new: Some(&event.object) },
            EventType::Deleted => Self { old: Some(&event.object), new: None },
        }
    }

    /// The new state, or the last state of a deleted object.
    pub fn object(&self) -> Option<&'a Arc<Object>> {
        self.new.or(self.old)
    }

    /// The old state, then the new one.
    pub fn both(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        self.old.into_iter().chain(self.new)
    }
}

type OnChange = Box<dyn Fn(Change<'_>) + Send + Sync>;
type OnResync = Box<dyn Fn() + Send + Sync>;

struct Handler {
    on_change: OnChange,
    on_resync: OnResync,
}

/// Event handlers by kind, until they are started.
pub struct Informers {
    kinds: BTreeMap<String, WatchedKind>,
    /// What turns of control loops are recorded with.
    pub(crate) spans: Recorder,
}

impl Default for Informers {
    fn default() -> Self {
        Self::recording(Recorder::OFF)
    }
}

/// A kind and its handlers.
struct WatchedKind {
    resource: String,
    /// Writes of the kind are not recorded: they are no cause that could be shown.
    lazy: bool,
    cache: Arc<Cache>,
    handlers: Vec<Handler>,
}

impl Informers {
    /// Without handlers; handlers are called with the change as the cause of what they do.
    pub fn recording(spans: Recorder) -> Self {
        Self { kinds: BTreeMap::new(), spans }
    }

    /// Adds handlers for a kind. `on_resync` is called at the start and whenever changes may have been lost.
    pub fn on(
        &mut self,
        kind: &Kind,
        cache: &Arc<Cache>,
        on_change: impl Fn(Change<'_>) + Send + Sync + 'static,
        on_resync: impl Fn() + Send + Sync + 'static,
    ) {
        let watched = self.kinds.entry(kind.prefix()).or_insert_with(|| WatchedKind {
            resource: qualified(&kind.group, &kind.plural),
            lazy: kind.lazy,
            cache: cache.clone(),
            handlers: Vec::new(),
        });
        watched.handlers.push(Handler { on_change: Box::new(on_change), on_resync: Box::new(on_resync) });
    }

    /// Starts one task per kind.
    pub fn start(self, supervisor: &Supervisor, tasks: &mut JoinSet<()>) {
        for watched in self.kinds.into_values() {
            let task = format!("informer {}", watched.resource);
            let (name, supervised) = (task.clone(), supervisor.clone());
            let watcher =
                Arc::new(KindWatcher { task: name, supervisor: supervised, spans: self.spans, watched });
            tasks.spawn(supervisor.clone().keep(task, move || watch(watcher.clone())));
        }
    }
}

struct KindWatcher {
    task: String,
    supervisor: Supervisor,
    spans: Recorder,
    watched: WatchedKind,
}

async fn watch(watcher: Arc<KindWatcher>) {
    let WatchedKind { cache, handlers, .. } = &watcher.watched;
    loop {
        let (_, _, mut cursor) = cache.list_and_watch(None);
        for handler in handlers {
            if let Err(panicked) = catch_panic(|| (handler.on_resync)()) {
                watcher.supervisor.panicked(&watcher.task, &panicked);
            }
        }
        while let Ok(events) = cursor.next_batch().await {
            events.iter().for_each(|event| watcher.notify(event));
        }
        tracing::warn!(task = watcher.task, "informer fell behind the watch cache, relisting");
    }
}

impl KindWatcher {
    /// Calls every handler, also when one of them panics.
    fn notify(&self, event: &Event) {
        let (change, meta) = (Change::of(event), &event.object.meta);
        let subject = || Subject::new(&self.watched.resource, &meta.namespace, &meta.name);
        let cause = if self.watched.lazy { Cause::NONE } else { cause::of_event(event, self.spans) };
        let mut handled = true;
        for handler in &self.watched.handlers {
            if let Err(panicked) = catch_panic(|| caused_by(cause, || (handler.on_change)(change))) {
                self.supervisor.quarantine(&self.task, subject(), &panicked);
                handled = false;
            }
        }
        if handled {
            self.supervisor.release(&self.task, subject);
        }
    }
}

/// The event handlers of one controller: they add names of its primary kind to its work queue.
pub struct EnqueueHandlers<'a> {
    informers: &'a mut Informers,
    primary: Arc<Cache>,
    /// Objects of the primary kind that are added on a resync.
    wanted: Arc<dyn Fn(&Object) -> bool + Send + Sync>,
    /// The controller's queue.
    pub queue: Arc<Queue<Name>>,
}

impl<'a> EnqueueHandlers<'a> {
    /// Adds every object of the primary kind that changes.
    pub fn new(informers: &'a mut Informers, kind: &Kind, primary: Arc<Cache>) -> Self {
        let queue = Arc::new(Queue::new());
        let mut handlers = Self { informers, primary: primary.clone(), wanted: Arc::new(|_| true), queue };
        handlers.on_change(kind, &primary, |change, add| {
            if let Some(object) = change.object() {
                add(Name::of(object));
            }
        });
        handlers
    }

    /// Adds objects of the primary kind that were created or changed and for which `wanted` is true.
    pub fn matching(
        informers: &'a mut Informers,
        kind: &Kind,
        primary: Arc<Cache>,
        wanted: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (queue, wanted) = (Arc::new(Queue::new()), Arc::new(wanted));
        let mut handlers = Self { informers, primary: primary.clone(), wanted: wanted.clone(), queue };
        handlers.on_change(kind, &primary, move |change, add| {
            if let Some(object) = change.new.filter(|object| wanted(object)) {
                add(Name::of(object));
            }
        });
        handlers
    }

    /// Adds the names that `names` derives from each change of another kind.
    pub fn on_change(
        &mut self,
        kind: &Kind,
        cache: &Arc<Cache>,
        names: impl Fn(Change<'_>, &mut dyn FnMut(Name)) + Send + Sync + 'static,
    ) {
        let queue = self.queue.clone();
        let on_change = move |change: Change<'_>| names(change, &mut |name| queue.add(name));
        let (queue, primary, wanted) = (self.queue.clone(), self.primary.clone(), self.wanted.clone());
        let spans = self.informers.spans;
        let on_resync = move || {
            // When `wanted` panics the object is added: its reconcile reports the panic.
            let is_wanted = |o: &Object| catch_panic(|| wanted(o)).unwrap_or(true);
            for object in primary.list(None).iter().filter(|o| is_wanted(o)) {
                let cause = cause::of_object(object, Rank::Resync, spans);
                caused_by(cause, || queue.add(Name::of(object)));
            }
        };
        self.informers.on(kind, cache, on_change, on_resync);
    }

    /// Adds the controllers of each changed object, old and new, that are of the kind `owner`.
    pub fn owned(&mut self, kind: &Kind, cache: &Arc<Cache>, owner: &'static str) {
        self.on_change(kind, cache, move |change, add| queue_owners(change, owner, add));
    }

    /// Like [`EnqueueHandlers::owned`]; also adds objects of the primary kind whose selector matches an object without a
    /// controller, because they may adopt it.
    pub fn owned_or_matching(&mut self, kind: &Kind, cache: &Arc<Cache>, owner: &'static str) {
        let primary = self.primary.clone();
        self.on_change(kind, cache, move |change, add| {
            queue_owners(change, owner, add);
            let Some(object) = change.new.filter(|o| controller_of(o).is_none()) else { return };
            let news = change
                .old
                .is_none_or(|old| old.meta.labels != object.meta.labels || controller_of(old).is_some());
            if !news || object.meta.labels.is_empty() {
                return;
            }
            for candidate in primary.list(Some(&object.meta.namespace)) {
                let selector = selector::of_workload(&candidate).filter(|s| !s.is_empty());
                if selector.is_some_and(|s| s.matches(&object.meta.labels)) {
                    add(Name::of(&candidate));
                }
            }
        });
    }
}

fn queue_owners(change: Change<'_>, kind: &str, add: &mut dyn FnMut(Name)) {
    for object in change.both() {
        if let Some(owner) = controller_of(object).filter(|o| o.kind == kind) {
            add(Name::new(&object.meta.namespace, &owner.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_testing::Cluster;
    use parking_lot::Mutex;
    use serde_json::json;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_that_one_listener_cannot_read_reaches_the_others() {
        let cluster = Cluster::bare().await;
        let client = &cluster.client;
        let kind = client.kind("", "configmaps");
        let (cache, seen) = (client.cache(&kind), Arc::new(Mutex::new(Vec::new())));
        let (supervisor, mut informers) = (Supervisor::default(), Informers::default());
        let of_test = |change: Change<'_>| change.object().is_some_and(|o| o.meta.namespace == "default");
        informers.on(
            &kind,
            &cache,
            move |change| assert!(!of_test(change) || change.object().is_none_or(|o| o.meta.name != "bad")),
            || panic!("cannot list"),
        );
        let noted = seen.clone();
        informers.on(
            &kind,
            &cache,
            move |change| noted.lock().extend(change.object().map(|o| o.meta.name.clone())),
            || (),
        );
        let mut tasks = JoinSet::new();
        informers.start(&supervisor, &mut tasks);
        cluster
            .until("the informer runs", |_| supervisor.panics().first().is_some_and(|(_, count)| *count == 1))
            .await;
        for name in ["bad", "good"] {
            cluster.create("", "configmaps", "default", json!({"metadata": {"name": name}})).await;
        }
        let has = |name: &str| seen.lock().iter().any(|one| one == name);
        cluster.until("both are seen", |_| has("bad") && has("good")).await;
        let aside = supervisor.quarantined();
        assert_eq!((aside.len(), aside[0].subject.to_string()), (1, "configmaps default/bad".to_owned()));
        assert_eq!(supervisor.panics(), [("informer configmaps".to_owned(), 2)]);
    }
}
