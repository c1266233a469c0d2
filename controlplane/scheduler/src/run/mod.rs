//! The scheduling loop: applies changes, schedules a batch of pods, and writes in the background.

// Results of decisions: bindings, conditions, preemptions.
mod outcome;
// Quarantine of objects that made the scheduler panic.
mod quarantine;
// Panics: quarantine, reports, retries.
mod recovery;
// Timers that start work which no event asks for.
mod timers;
#[cfg(test)]
mod panic_tests;

use super::config::Profiles;
use super::diagnosis::Diagnosis;
use super::event_handlers::{SOURCES, Source, State};
use super::place::Placer;
use super::pod::{PodInfo, PodKey};
use super::queue::{Event, Millis};
use super::volumes::Decision;
use super::writes::{Placed, Writes};
use crate::metrics::{AttemptResult, SchedulerMetrics, Size};
use coracle_cli::supervise::{Supervisor, catch_panic};
use coracle_client::Client;
use coracle_client::diagnostics::PendingPods;
use coracle_client::user::User;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::{Cache, Cursor};
use coracle_kinds::watch::event::EventType;
use coracle_proto::status::ApiError;
use futures::future::select_all;
use parking_lot::{Mutex, RwLock};
use quarantine::Quarantine;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
pub(crate) use timers::Timers;
use tokio::task::JoinSet;

/// Name of the scheduler task in metrics and on health pages.
const TASK: &str = "scheduler";
/// How long to wait for pending writes before the state is rebuilt.
const SETTLE: Duration = Duration::from_secs(5);
/// Pods scheduled before changes are applied again.
const BATCH: usize = 128;
/// Limit of concurrent batches of bindings.
const BATCHES: usize = 4;
/// Limit of other concurrent writes.
const IN_FLIGHT: usize = 256;
/// How long a claim may take to get its volume.
const VOLUME_PATIENCE: Millis = 600_000;
/// The diagnosis of a pod and its summary.
pub type PendingReason = (Arc<Diagnosis>, String);

/// Why pods are pending, for debug pages.
#[derive(Clone, Default)]
pub struct PendingReasons(Arc<RwLock<HashMap<PodKey, PendingReason>>>);

impl PendingReasons {
    fn drop(&self, pod: &Object) {
        let key = format!("{}/{}", pod.meta.namespace, pod.meta.name);
        self.0.write().remove(key.as_str());
    }

    /// The reason of a pending pod.
    pub fn of(&self, namespace: &str, name: &str) -> Option<PendingReason> {
        self.0.read().get(format!("{namespace}/{name}").as_str()).cloned()
    }
}

impl PendingPods for PendingReasons {
    fn reasons(&self) -> BTreeMap<String, String> {
        self.0.read().iter().map(|(pod, (_, sentence))| (pod.to_string(), sentence.clone())).collect()
    }

    fn explain(&self, namespace: &str, name: &str) -> Option<String> {
        let (why, sentence) = self.of(namespace, name)?;
        Some(format!("{sentence}\n\n{}", why.table()))
    }
}

/// Starts the scheduler; it ends when the set is dropped. It updates `metrics` and `pending`; `supervisor` restarts it.
pub fn start(
    client: &Client,
    profiles: Profiles,
    metrics: Arc<SchedulerMetrics>,
    pending: &PendingReasons,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    start_with(client, profiles, metrics, pending, (supervisor, Timers::default()))
}

/// [`start`] with other timers. Tests turn them off, because they would hide that an event was lost.
pub(crate) fn start_with(
    client: &Client,
    profiles: Profiles,
    metrics: Arc<SchedulerMetrics>,
    pending: &PendingReasons,
    (supervisor, timers): (&Supervisor, Timers),
) -> JoinSet<()> {
    let client = client.acting_as(User::new("system:kube-scheduler", []));
    let (writes, events) = Writes::new(&client);
    let mut tasks = JoinSet::new();
    tasks.spawn(supervisor.clone().finish("events of the scheduler", events));
    let parts = Parts {
        client,
        profiles,
        writes,
        pending: pending.clone(),
        metrics,
        supervisor: supervisor.clone(),
        quarantine: Arc::new(Mutex::new(Quarantine::new(timers.rest))),
        flush_every: timers.flush,
    };
    tasks.spawn(supervisor.clone().keep(TASK, move || run(parts.clone())));
    tasks
}

/// What a runner is built from at each restart.
#[derive(Clone)]
struct Parts {
    client: Client,
    profiles: Profiles,
    writes: Writes,
    pending: PendingReasons,
    metrics: Arc<SchedulerMetrics>,
    supervisor: Supervisor,
    quarantine: Arc<Mutex<Quarantine>>,
    flush_every: Duration,
}

/// Schedules forever. After a panic the state is rebuilt without the object that caused it.
async fn run(parts: Parts) {
    loop {
        Runner::new(parts.clone()).run().await;
    }
}

/// A kind that is followed.
struct Follower {
    source: Source,
    cache: Arc<Cache>,
    cursor: Cursor,
}

/// A pod's attempts so far.
struct Tries {
    count: u32,
    first: Instant,
    latest: Instant,
}

/// Pods that were to be bound, and how that went.
type Bound = Vec<(Arc<PodInfo>, Result<(), ApiError>)>;

/// What another write was for, and how it went.
enum Done {
    /// Claims were decided; the pod is bound once they have their volumes.
    Decided(Arc<PodInfo>, Result<(), ApiError>),
    Reported(Arc<PodInfo>, Result<(), ApiError>),
}

struct Runner {
    writes: Writes,
    pending: PendingReasons,
    state: State,
    followers: Vec<Follower>,
    under_way: JoinSet<Done>,
    /// Pods that have a node and are not being bound yet.
    decided: Vec<Placed>,
    bindings: JoinSet<Bound>,
    /// Pods whose claims are being bound, with their node and since when.
    awaiting: HashMap<PodKey, (Arc<PodInfo>, String, Millis)>,
    /// Pods for which others are being removed.
    preempting: HashSet<PodKey>,
    /// Attempts of pods that have no node yet.
    tries: HashMap<PodKey, Tries>,
    metrics: Arc<SchedulerMetrics>,
    begin: Instant,
    flushed: Instant,
    flush_every: Duration,
    supervisor: Supervisor,
    quarantine: Arc<Mutex<Quarantine>>,
    /// A panic may have left the state half changed.
    broken: bool,
}

impl Drop for Runner {
    /// Another server may decide from now on: what was found here is no longer true.
    fn drop(&mut self) {
        self.pending.0.write().clear();
    }
}

impl Runner {
    fn new(parts: Parts) -> Self {
        let Parts { client, profiles, writes, pending, metrics, supervisor, quarantine, flush_every } = parts;
        let mut runner = Self {
            writes,
            pending,
            state: State::new(Placer::with_profiles(profiles)),
            followers: Vec::new(),
            under_way: JoinSet::new(),
            decided: Vec::new(),
            bindings: JoinSet::new(),
            awaiting: HashMap::new(),
            preempting: HashSet::new(),
            tries: HashMap::new(),
            metrics,
            begin: Instant::now(),
            flushed: Instant::now(),
            flush_every,
            supervisor,
            quarantine,
            broken: false,
        };
        for (source, group, plural) in SOURCES {
            let cache = client.cache(&client.kind(group, plural));
            let (objects, _, cursor) = cache.list_and_watch(None);
            runner.followers.push(Follower { source, cache, cursor });
            // All of them, although the state is of no use after the first panic: the next one is then made without any of
            // those that panic.
            objects.iter().for_each(|object| runner.set(source, object, None));
        }
        runner
    }

    /// Takes in an object that came or changed, unless it is quarantined.
    fn set(&mut self, source: Source, object: &Arc<Object>, mut before: Option<&Object>) {
        let any_quarantined = !self.quarantine.lock().is_empty();
        if any_quarantined {
            let mut quarantine = self.quarantine.lock();
            if quarantine.holds(source, object, Instant::now()) {
                return;
            }
            // What was left out is not known as it was before.
            before = before.filter(|_| !quarantine.knows(source, object));
        }
        let now = self.now();
        match catch_panic(|| self.state.set(source, object, before, now)) {
            Ok(()) if !any_quarantined => {}
            // A pod was only read so far; what becomes of it is seen when it is decided on.
            Ok(()) if source == Source::Pods && self.is_waiting(object) => {}
            Ok(()) => self.handled(source, object),
            Err(panicked) => self.quarantine_object(source, object, &panicked),
        }
    }

    fn is_waiting(&self, pod: &Object) -> bool {
        let key = format!("{}/{}", pod.meta.namespace, pod.meta.name);
        self.state.queue.get(&key).is_some()
    }

    fn now(&self) -> Millis {
        self.begin.elapsed().as_millis() as Millis
    }

    /// Runs until an object made it panic, and then until what it began is written.
    async fn run(mut self) {
        while !self.broken {
            self.turn().await;
        }
        self.write_bindings();
        let settled = async {
            while self.bindings.join_next().await.is_some() {}
            while self.under_way.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(SETTLE, settled).await;
    }

    async fn turn(&mut self) {
        self.take_in();
        if self.broken {
            return;
        }
        while let Some(done) = self.under_way.try_join_next() {
            self.finish(done);
        }
        while let Some(bound) = self.bindings.try_join_next() {
            self.bound(bound);
        }
        self.settle_claims();
        if self.flushed.elapsed() > self.flush_every {
            self.flushed = Instant::now();
            let now = self.now();
            self.state.queue.flush(now);
        }
        self.try_again();
        self.decide();
        self.write_bindings();
        let snapshot = &self.state.placer.snapshot;
        let (nodes, pods) = (snapshot.node_count(), snapshot.pod_count());
        self.metrics.size(Size { nodes, pods, ..self.state.queue.size() });
        self.writes.set_busy(self.state.queue.has_ready() || !self.bindings.is_empty());
        if self.has_work() {
            tokio::task::yield_now().await;
        } else {
            self.wait().await;
        }
    }

    fn has_work(&self) -> bool {
        self.broken || (self.state.queue.has_ready() && !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.bindings.len() >= BATCHES || self.under_way.len() >= IN_FLIGHT
    }

    /// Until something changes, a write is done, or it is time to try again.
    async fn wait(&mut self) {
        let now = self.now();
        let due = self.state.queue.next_due().map(|due| Duration::from_millis(due.saturating_sub(now)));
        let rested =
            self.quarantine.lock().next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let pause = due.into_iter().chain(rested).fold(self.flush_every, Duration::min);
        let news = select_all(self.followers.iter_mut().map(|f| Box::pin(f.cursor.changed())));
        let (done, bound) = tokio::select! {
            _ = news => (None, None),
            done = self.under_way.join_next(), if !self.under_way.is_empty() => (done, None),
            bound = self.bindings.join_next(), if !self.bindings.is_empty() => (None, bound),
            () = tokio::time::sleep(pause) => (None, None),
        };
        if let Some(done) = done {
            self.finish(done);
        }
        if let Some(bound) = bound {
            self.bound(bound);
        }
    }

    /// Takes in everything that changed.
    fn take_in(&mut self) {
        for index in 0..self.followers.len() {
            let source = self.followers[index].source;
            loop {
                match self.followers[index].cursor.try_batch() {
                    Ok(events) if events.is_empty() => break,
                    Ok(events) => {
                        for event in events {
                            match event.what {
                                EventType::Deleted => self.removed(source, &event.object),
                                _ => self.set(source, &event.object, event.previous.as_deref()),
                            }
                        }
                    }
                    Err(_) => {
                        // Too many changes at once: start over from all there is.
                        let follower = &mut self.followers[index];
                        let (objects, _, cursor) = follower.cache.list_and_watch(None);
                        follower.cursor = cursor;
                        let now = self.now();
                        self.state.retain(source, &objects, now);
                        objects.iter().for_each(|object| self.set(source, object, None));
                    }
                }
            }
        }
    }

    fn removed(&mut self, source: Source, object: &Arc<Object>) {
        let now = self.now();
        match catch_panic(|| self.state.remove(source, object, now)) {
            Ok(()) => self.forget(source, &object.meta.namespace, &object.meta.name),
            Err(panicked) => self.quarantine_object(source, object, &panicked),
        }
        if source == Source::Pods {
            self.pending.drop(object);
            let key = format!("{}/{}", object.meta.namespace, object.meta.name);
            self.tries.remove(key.as_str());
        }
    }

    /// Decides on a batch of pods.
    fn decide(&mut self) {
        for _ in 0..BATCH {
            if self.is_full() || self.broken {
                return;
            }
            let now = self.now();
            let Some(pod) = self.state.queue.pop(now) else { return };
            let decided = catch_panic(|| self.decide_one(&pod, now));
            if decided.is_ok() && self.quarantine.lock().is_empty() {
                continue;
            }
            match (decided, self.writes.pod(&pod)) {
                (Ok(()), Some(object)) => self.handled(Source::Pods, &object),
                (Err(panicked), Some(object)) => self.quarantine_object(Source::Pods, &object, &panicked),
                (Ok(()), None) => {}
                (Err(panicked), None) => {
                    self.supervisor.panicked(TASK, &panicked);
                    self.broken = true;
                }
            }
        }
    }

    fn decide_one(&mut self, pod: &Arc<PodInfo>, now: Millis) {
        let begun = Instant::now();
        let tries = self.tries.entry(pod.key.clone());
        let tries = tries.or_insert(Tries { count: 0, first: begun, latest: begun });
        (tries.count, tries.latest) = (tries.count + 1, begun);
        #[cfg(test)]
        panic_tests::trap(pod);
        let placed = self.state.placer.place(pod);
        self.metrics.decided(begun.elapsed());
        match placed {
            Ok(node) => self.settle(pod, node),
            Err(why) => {
                self.mark_unschedulable(pod, why, now);
                self.metrics.attempted(&pod.scheduler, AttemptResult::Unschedulable, begun.elapsed());
            }
        }
    }

    /// Counts the pod at its node and begins to bind it.
    fn settle(&mut self, pod: &Arc<PodInfo>, id: usize) {
        let snapshot = &mut self.state.placer.snapshot;
        let Some(node) = snapshot.node(id) else { return };
        let name = node.name.clone();
        let decisions = snapshot.volumes.decide(pod, node).unwrap_or_default();
        snapshot.assume(pod, id);
        snapshot.nominate(pod, "");
        let now = self.now();
        self.state.queue.on_event(Event::Placed(pod), &self.state.placer.snapshot, now);
        if decisions.is_empty() {
            self.bind(pod.clone(), name);
        } else {
            self.awaiting.insert(pod.key.clone(), (pod.clone(), name.clone(), now));
            let (writes, pod) = (self.writes.clone(), pod.clone());
            self.under_way.spawn(async move {
                let result = decide_claims(&writes, &pod, &name, &decisions).await;
                Done::Decided(pod, result)
            });
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String) {
        self.decided.push((pod, node));
    }

    /// Begins to bind what was decided on.
    fn write_bindings(&mut self) {
        if self.decided.is_empty() {
            return;
        }
        let (writes, placed) = (self.writes.clone(), std::mem::take(&mut self.decided));
        self.bindings.spawn(async move {
            let answers = writes.bind(&placed).await;
            placed.into_iter().map(|(pod, _)| pod).zip(answers).collect()
        });
    }

    /// Binds pods whose claims have their volumes by now.
    fn settle_claims(&mut self) {
        let now = self.now();
        let volumes = &self.state.placer.snapshot.volumes;
        let ready = |(pod, _, since): &(Arc<PodInfo>, String, Millis)| {
            volumes.ready(pod) || now > since + VOLUME_PATIENCE
        };
        let keys: Vec<PodKey> =
            self.awaiting.iter().filter(|(_, a)| ready(a)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            let Some((pod, node, _)) = self.awaiting.remove(&key) else { continue };
            if self.state.placer.snapshot.volumes.ready(&pod) {
                self.bind(pod, node);
            } else {
                self.undo_binding(&pod, "binding volumes: context deadline exceeded");
            }
        }
    }
}

async fn decide_claims(
    writes: &Writes,
    pod: &PodInfo,
    node: &str,
    decisions: &[Decision],
) -> Result<(), ApiError> {
    for decision in decisions {
        writes.decide(pod, node, decision).await?;
    }
    Ok(())
}
