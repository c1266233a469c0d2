//! Changes of all kinds, including those that come and go at run time, for those who care about every object.

use super::informer::Change;
use coracle_cli::supervise::{Subject, Supervisor, attempt};
use coracle_client::Client;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::{Cache, Event};
use coracle_proto::status::qualified;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinSet};

/// One who hears of every object.
pub trait Listener: Send + Sync + 'static {
    /// An object changed.
    fn seen(&self, kind: &Arc<Kind>, change: Change<'_>);

    /// Changes may have been missed, or the kind is new: here are all objects there are.
    fn missed(&self, kind: &Arc<Kind>, cache: &Cache);

    /// The kind is no longer served.
    fn gone(&self, kind: &Arc<Kind>);
}

/// All listeners.
pub type Listeners = Arc<Vec<Arc<dyn Listener>>>;

/// Every stored kind that can be listed and deleted, once per place of storage; Events aside, which own nothing, belong
/// to nobody and end by themselves.
pub fn kinds(client: &Client) -> BTreeMap<String, Arc<Kind>> {
    let all = client.registry().all();
    let stored = all.into_iter().filter(|k| k.stored && k.stored_as.is_none());
    let deletable = stored.filter(|k| k.verbs.contains(&"delete") && k.verbs.contains(&"list"));
    deletable.filter(|k| k.plural != "events").map(|k| (k.prefix(), k)).collect()
}

/// Follows all kinds, without end.
pub async fn follow(client: Client, listeners: Listeners, supervisor: Supervisor) {
    let mut changes = client.registry().changes();
    let mut tasks = JoinSet::new();
    let mut followed: BTreeMap<String, (Arc<Kind>, AbortHandle)> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let now = kinds(&client);
        let gone: BTreeSet<String> = followed.keys().filter(|p| !now.contains_key(*p)).cloned().collect();
        for prefix in gone {
            if let Some((kind, task)) = followed.remove(&prefix) {
                task.abort();
                listeners.iter().for_each(|l| l.gone(&kind));
            }
        }
        for (prefix, kind) in now {
            if followed.contains_key(&prefix) {
                continue;
            }
            if let Some(cache) = client.find_cache(&kind) {
                let follower = Arc::new(Follower {
                    task: format!("follower {}", qualified(&kind.group, &kind.plural)),
                    kind: kind.clone(),
                    cache,
                    listeners: listeners.clone(),
                    supervisor: supervisor.clone(),
                });
                let name = follower.task.clone();
                let task = tasks.spawn(supervisor.clone().keep(name, move || follow_kind(follower.clone())));
                followed.insert(prefix, (kind, task));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

struct Follower {
    task: String,
    kind: Arc<Kind>,
    cache: Arc<Cache>,
    listeners: Listeners,
    supervisor: Supervisor,
}

async fn follow_kind(follower: Arc<Follower>) {
    let Follower { kind, cache, listeners, .. } = &*follower;
    loop {
        let (_, _, mut cursor) = cache.list_and_watch(None);
        listeners.iter().for_each(|l| l.missed(kind, cache));
        while let Ok(events) = cursor.next_batch().await {
            events.iter().for_each(|event| follower.tell(event));
        }
    }
}

impl Follower {
    /// Tells every listener, also when one of them cannot handle the object.
    fn tell(&self, event: &Event) {
        let (change, meta) = (Change::of(event), &event.object.meta);
        let subject = || Subject::new(&self.kind.plural, &meta.namespace, &meta.name);
        let mut handled = true;
        for listener in self.listeners.iter() {
            if let Err(panicked) = attempt(|| listener.seen(&self.kind, change)) {
                self.supervisor.quarantine(&self.task, subject(), &panicked);
                handled = false;
            }
        }
        if handled {
            self.supervisor.release(&self.task, subject);
        }
    }
}
