//! Watches objects of all kinds, including custom resources that are added and removed at run time, and objects whose initializers
//! are pending. Used by the garbage collector, the namespace controller and the quota controller.

use super::cause;
use super::informer::Change;
use coracle_cli::supervise::{Subject, Supervisor, catch_panic};
use coracle_client::Client;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::event::Event;
use coracle_proto::status::qualified;
use coracle_trace::{Cause, Recorder, caused_by};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinSet};

/// Handles changes of objects of every kind.
pub trait ObjectHandler: Send + Sync + 'static {
    /// An object changed.
    fn on_change(&self, kind: &Arc<Kind>, change: Change<'_>);

    /// Changes may have been missed, or the kind is new: `cache` has all its objects.
    fn on_resync(&self, kind: &Arc<Kind>, cache: &Cache);

    /// The kind is no longer served.
    fn on_kind_removed(&self, kind: &Arc<Kind>);
}

/// The handlers, called in order.
pub type ObjectHandlers = Arc<Vec<Arc<dyn ObjectHandler>>>;

/// Every stored kind that can be listed and deleted, once per storage prefix. Without Events: they own nothing, have no
/// owner and expire.
pub fn kinds(client: &Client) -> BTreeMap<String, Arc<Kind>> {
    let all = client.registry().all();
    let stored = all.into_iter().filter(|k| k.stored && k.stored_as.is_none());
    let deletable = stored.filter(|k| k.verbs.contains(&"delete") && k.verbs.contains(&"list"));
    deletable.filter(|k| k.plural != "events").map(|k| (k.prefix(), k)).collect()
}

/// Watches all kinds. Never returns while the registry exists.
pub async fn watch(client: Client, handlers: ObjectHandlers, supervisor: Supervisor) {
    let mut changes = client.registry().changes();
    let mut tasks = JoinSet::new();
    let mut watched: BTreeMap<String, (Arc<Kind>, AbortHandle)> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let now = kinds(&client);
        let gone: BTreeSet<String> = watched.keys().filter(|p| !now.contains_key(*p)).cloned().collect();
        for prefix in gone {
            if let Some((kind, task)) = watched.remove(&prefix) {
                task.abort();
                handlers.iter().for_each(|handler| handler.on_kind_removed(&kind));
            }
        }
        for (prefix, kind) in now {
            if watched.contains_key(&prefix) {
                continue;
            }
            if let Some(cache) = client.find_whole_cache(&kind) {
                let watcher = Arc::new(KindWatcher {
                    task: format!("follower {}", qualified(&kind.group, &kind.plural)),
                    kind: kind.clone(),
                    cache,
                    handlers: handlers.clone(),
                    supervisor: supervisor.clone(),
                    spans: client.recorder(),
                });
                let name = watcher.task.clone();
                let task = tasks.spawn(supervisor.clone().keep(name, move || watch_kind(watcher.clone())));
                watched.insert(prefix, (kind, task));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

struct KindWatcher {
    task: String,
    kind: Arc<Kind>,
    cache: Arc<Cache>,
    handlers: ObjectHandlers,
    supervisor: Supervisor,
    spans: Recorder,
}

async fn watch_kind(watcher: Arc<KindWatcher>) {
    let KindWatcher { kind, cache, handlers, .. } = &*watcher;
    loop {
        let (_, _, mut cursor) = cache.list_and_watch(None);
        handlers.iter().for_each(|handler| handler.on_resync(kind, cache));
        while let Ok(events) = cursor.next_batch().await {
            events.iter().for_each(|event| watcher.notify(event));
        }
    }
}

impl KindWatcher {
    /// Calls every handler, also when one of them panics.
    fn notify(&self, event: &Event) {
        let (change, meta) = (Change::of(event), &event.object.meta);
        let subject = || Subject::new(&self.kind.plural, &meta.namespace, &meta.name);
        let cause = if self.kind.lazy { Cause::NONE } else { cause::of_event(event, self.spans) };
        let mut handled = true;
        for handler in self.handlers.iter() {
            if let Err(panicked) = catch_panic(|| caused_by(cause, || handler.on_change(&self.kind, change)))
            {
                self.supervisor.quarantine(&self.task, subject(), &panicked);
                handled = false;
            }
        }
        if handled {
            self.supervisor.release(&self.task, subject);
        }
    }
}
