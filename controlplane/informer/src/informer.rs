//! From changes of objects to keys of work. One task per watched kind tells every listener; a listener that may have
//! missed something is told so and queues all it is responsible for, so that nothing depends on having seen an event.

use super::pod::controller_of;
use super::queue::Queue;
use super::selector;
use coracle_cli::supervise::{Subject, Supervisor, attempt};
pub use coracle_kinds::object::Name;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::{Cache, Event, EventType};
use coracle_proto::status::qualified;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// One change: the object before and after; without a before it is new, without an after it is gone.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Before.
    pub old: Option<&'a Arc<Object>>,
    /// After.
    pub new: Option<&'a Arc<Object>>,
}

impl<'a> Change<'a> {
    /// The change that an event tells of.
    pub fn of(event: &'a Event) -> Self {
        match event.what {
            EventType::Added => Self { old: None, new: Some(&event.object) },
            EventType::Modified => Self { old: event.previous.as_ref(), new: Some(&event.object) },
            EventType::Deleted => Self { old: Some(&event.object), new: None },
        }
    }

    /// The newest state there is.
    pub fn object(&self) -> Option<&'a Arc<Object>> {
        self.new.or(self.old)
    }

    /// Before and after, as far as they are there.
    pub fn both(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        self.old.into_iter().chain(self.new)
    }
}

type Seen = Box<dyn Fn(Change<'_>) + Send + Sync>;
type Missed = Box<dyn Fn() + Send + Sync>;

struct Listener {
    seen: Seen,
    missed: Missed,
}

/// Listeners by kind, until they are started.
#[derive(Default)]
pub struct Informers {
    kinds: BTreeMap<String, Followed>,
}

/// A kind and those who listen to it.
struct Followed {
    resource: String,
    cache: Arc<Cache>,
    listeners: Vec<Listener>,
}

impl Informers {
    /// Listens to a kind. `missed` is called at the start and whenever changes may have been lost.
    pub fn on(
        &mut self,
        kind: &Kind,
        cache: &Arc<Cache>,
        seen: impl Fn(Change<'_>) + Send + Sync + 'static,
        missed: impl Fn() + Send + Sync + 'static,
    ) {
        let followed = self.kinds.entry(kind.prefix()).or_insert_with(|| Followed {
            resource: qualified(&kind.group, &kind.plural),
            cache: cache.clone(),
            listeners: Vec::new(),
        });
        followed.listeners.push(Listener { seen: Box::new(seen), missed: Box::new(missed) });
    }

    /// Starts one task per kind.
    pub fn start(self, supervisor: &Supervisor, tasks: &mut JoinSet<()>) {
        for followed in self.kinds.into_values() {
            let task = format!("informer {}", followed.resource);
            let follower =
                Arc::new(Follower { task: task.clone(), supervisor: supervisor.clone(), followed });
            tasks.spawn(supervisor.clone().keep(task, move || follow(follower.clone())));
        }
    }
}

struct Follower {
    task: String,
    supervisor: Supervisor,
    followed: Followed,
}

async fn follow(follower: Arc<Follower>) {
    let Followed { cache, listeners, .. } = &follower.followed;
    loop {
        let (_, _, mut cursor) = cache.list_and_watch(None);
        for listener in listeners {
            if let Err(panicked) = attempt(|| (listener.missed)()) {
                follower.supervisor.panicked(&follower.task, &panicked);
            }
        }
        while let Ok(events) = cursor.next_batch().await {
            events.iter().for_each(|event| follower.tell(event));
        }
        tracing::warn!(task = follower.task, "an informer was too slow and starts again");
    }
}

impl Follower {
    /// Tells every listener, also when one of them cannot handle the object.
    fn tell(&self, event: &Event) {
        let (change, meta) = (Change::of(event), &event.object.meta);
        let subject = || Subject::new(&self.followed.resource, &meta.namespace, &meta.name);
        let mut handled = true;
        for listener in &self.followed.listeners {
            if let Err(panicked) = attempt(|| (listener.seen)(change)) {
                self.supervisor.quarantine(&self.task, subject(), &panicked);
                handled = false;
            }
        }
        if handled {
            self.supervisor.release(&self.task, subject);
        }
    }
}

/// What one controller listens to, all ending in one queue of the names of its primary kind.
pub struct Feed<'a> {
    informers: &'a mut Informers,
    primary: Arc<Cache>,
    /// Of which objects of the primary kind there may be work.
    wanted: Arc<dyn Fn(&Object) -> bool + Send + Sync>,
    /// The controller's queue.
    pub queue: Arc<Queue<Name>>,
}

impl<'a> Feed<'a> {
    /// Queues every object of the primary kind that changes.
    pub fn new(informers: &'a mut Informers, kind: &Kind, primary: Arc<Cache>) -> Self {
        let queue = Arc::new(Queue::new());
        let mut feed = Self { informers, primary: primary.clone(), wanted: Arc::new(|_| true), queue };
        feed.also(kind, &primary, |change, add| {
            if let Some(object) = change.object() {
                add(Name::of(object));
            }
        });
        feed
    }

    /// Queues those objects of the primary kind, new or changed, of which `wanted` says that there may be work.
    pub fn only(
        informers: &'a mut Informers,
        kind: &Kind,
        primary: Arc<Cache>,
        wanted: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (queue, wanted) = (Arc::new(Queue::new()), Arc::new(wanted));
        let mut feed = Self { informers, primary: primary.clone(), wanted: wanted.clone(), queue };
        feed.also(kind, &primary, move |change, add| {
            if let Some(object) = change.new.filter(|object| wanted(object)) {
                add(Name::of(object));
            }
        });
        feed
    }

    /// Queues what `names` makes of each change of another kind.
    pub fn also(
        &mut self,
        kind: &Kind,
        cache: &Arc<Cache>,
        names: impl Fn(Change<'_>, &mut dyn FnMut(Name)) + Send + Sync + 'static,
    ) {
        let queue = self.queue.clone();
        let seen = move |change: Change<'_>| names(change, &mut |name| queue.add(name));
        let (queue, primary, wanted) = (self.queue.clone(), self.primary.clone(), self.wanted.clone());
        let missed = move || {
            // What cannot be judged is queued: its own turn shows what is wrong with it.
            let judged = |o: &Object| attempt(|| wanted(o)).unwrap_or(true);
            primary.list(None).iter().filter(|o| judged(o)).for_each(|o| queue.add(Name::of(o)));
        };
        self.informers.on(kind, cache, seen, missed);
    }

    /// Queues the controller of each changed object, before and after, if it is of the kind `owner`.
    pub fn owned(&mut self, kind: &Kind, cache: &Arc<Cache>, owner: &'static str) {
        self.also(kind, cache, move |change, add| queue_owners(change, owner, add));
    }

    /// Like [`Feed::owned`]; and those whose selector matches an object without controller, for they may adopt it.
    pub fn owned_or_matching(&mut self, kind: &Kind, cache: &Arc<Cache>, owner: &'static str) {
        let primary = self.primary.clone();
        self.also(kind, cache, move |change, add| {
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
