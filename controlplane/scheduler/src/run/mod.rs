//! The scheduling loop: applies changes, schedules a batch of pods, and writes in the background.

// Pods that extenders are asked about.
mod consult;
// From a decision to the binding.
mod binding;
// Results of decisions: bindings, conditions, preemptions.
mod outcome;
// What pods are told about failed attempts, in order.
mod reports;
// Quarantine of objects that made the scheduler panic.
mod quarantine;
// Panics: quarantine, reports, retries.
mod recovery;
// Spans of attempts, waits and verdicts.
mod spans;
// Timers that start work which no event asks for.
mod timers;
#[cfg(test)]
mod panic_tests;

use super::attempt::Attempt;
use super::config::Configuration;
use super::diagnosis::Diagnosis;
use super::event_handlers::{SOURCES, Source, State};
use super::extender::Extenders;
use super::place::Placer;
use super::pod::{PodInfo, PodKey};
use super::profile::Profiles;
use super::queue::{Backoff, Millis, Queue};
use super::waits::Waited;
use super::writes::{Placed, Reserved, Writes};
use crate::metrics::{AttemptResult, SchedulerMetrics, Size};
use consult::Consulted;
use coracle_cli::supervise::{Supervisor, catch_panic};
use coracle_client::Client;
use coracle_client::diagnostics::PendingPods;
use coracle_client::user::User;
use coracle_informer::cause;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::{Cache, Cursor};
use coracle_kinds::watch::event::EventType;
use coracle_proto::status::ApiError;
use coracle_trace::{Cause, Recorder, Span, caused_by};
use futures::future::select_all;
use parking_lot::{Mutex, RwLock};
use quarantine::Quarantine;
use reports::Reports;
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
/// Limit of pods that extenders are asked about at a time.
const CONSULTED: usize = 16;
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

/// Starts the scheduler as configured; it ends when the set is dropped. It updates `metrics` and `pending`; `supervisor` restarts it.
pub fn start(
    client: &Client,
    config: Configuration,
    metrics: Arc<SchedulerMetrics>,
    pending: &PendingReasons,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    start_with(client, config, metrics, pending, (supervisor, Timers::default()))
}

/// [`start`] with other timers. Tests turn them off, because they would hide that an event was lost.
pub(crate) fn start_with(
    client: &Client,
    config: Configuration,
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
        profiles: config.profiles,
        extenders: Extenders::new(config.extenders),
        backoff: config.backoff,
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
    extenders: Extenders,
    backoff: Backoff,
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
    /// When it could be tried for the first time.
    first: Instant,
    latest: Instant,
    attempt: Attempt,
    /// How long it waited for the latest attempt, until that is recorded.
    waits: Vec<Waited>,
}

impl Tries {
    fn new(first: Instant) -> Self {
        Self { count: 0, first, latest: first, attempt: Attempt::OFF, waits: Vec::new() }
    }
}

/// Pods that were to be bound, how that went and how long it took.
struct Bound {
    pods: Vec<(Arc<PodInfo>, Result<(), ApiError>)>,
    took: Duration,
}

/// A pod whose claims are being bound.
struct Awaiting {
    pod: Arc<PodInfo>,
    node: String,
    since: Millis,
    begun: Instant,
    /// What was decided about its claims is being written.
    is_writing: bool,
    /// Its devices must be made ready first.
    waits_for_devices: bool,
}

/// Claims of devices that were written, by their names in decisions, and the error that ended that.
struct Written {
    devices: Vec<(String, Reserved)>,
    result: Result<(), ApiError>,
}

/// What another write was for, and how it went.
enum Done {
    /// Claims were decided; the pod is bound once they have their volumes.
    Decided(Arc<PodInfo>, Written),
    Reported {
        pod: Arc<PodInfo>,
        preempts: bool,
        result: Result<(), ApiError>,
    },
    /// A claim had its devices taken, so that the pod may fit elsewhere.
    Deallocated(Arc<PodInfo>, Result<(), ApiError>),
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
    extenders: Extenders,
    /// Questions to extenders.
    consulting: JoinSet<Consulted>,
    /// Pods whose claims are being bound.
    awaiting: HashMap<PodKey, Awaiting>,
    /// Pods for which others are being removed.
    preempting: HashSet<PodKey>,
    reports: Reports,
    /// Attempts of pods that have no node yet.
    tries: HashMap<PodKey, Tries>,
    spans: Recorder,
    /// Spans of pods that wait for a node.
    waiting: HashMap<PodKey, Span>,
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
        let Parts { client, profiles, extenders, backoff, writes, .. } = parts;
        let Parts { pending, metrics, supervisor, quarantine, flush_every, .. } = parts;
        let spans = client.recorder();
        let mut placer = Placer::with_profiles(profiles);
        placer.keeps_scores = spans.is_on();
        let mut runner = Self {
            writes,
            pending,
            state: State::new(placer, Queue::with_backoff(backoff)),
            extenders,
            consulting: JoinSet::new(),
            followers: Vec::new(),
            under_way: JoinSet::new(),
            decided: Vec::new(),
            bindings: JoinSet::new(),
            awaiting: HashMap::new(),
            preempting: HashSet::new(),
            reports: Reports::default(),
            tries: HashMap::new(),
            spans,
            waiting: HashMap::new(),
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
            objects.iter().for_each(|object| runner.resync(source, object));
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
            while self.consulting.join_next().await.is_some() {}
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
        while let Some(answer) = self.consulting.try_join_next() {
            self.consulted(answer);
        }
        self.settle_claims();
        if self.flushed.elapsed() > self.flush_every {
            self.flushed = Instant::now();
            let now = self.now();
            self.state.queue.flush(now);
            self.forget_placed();
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
        self.bindings.len() >= BATCHES
            || self.under_way.len() >= IN_FLIGHT
            || self.consulting.len() >= CONSULTED
    }

    /// Until something changes, a write is done, or it is time to try again.
    async fn wait(&mut self) {
        let now = self.now();
        let due = self.state.queue.next_due().map(|due| Duration::from_millis(due.saturating_sub(now)));
        let rested =
            self.quarantine.lock().next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let pause = due.into_iter().chain(rested).fold(self.flush_every, Duration::min);
        let news = select_all(self.followers.iter_mut().map(|f| Box::pin(f.cursor.changed())));
        let (done, bound, answer) = tokio::select! {
            _ = news => (None, None, None),
            done = self.under_way.join_next(), if !self.under_way.is_empty() => (done, None, None),
            bound = self.bindings.join_next(), if !self.bindings.is_empty() => (None, bound, None),
            answer = self.consulting.join_next(), if !self.consulting.is_empty() => (None, None, answer),
            () = tokio::time::sleep(pause) => (None, None, None),
        };
        if let Some(done) = done {
            self.finish(done);
        }
        if let Some(bound) = bound {
            self.bound(bound);
        }
        if let Some(answer) = answer {
            self.consulted(answer);
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
                            let is_pod = source == Source::Pods;
                            let cause =
                                if is_pod { cause::of_event(&event, self.spans) } else { Cause::NONE };
                            caused_by(cause, || match event.what {
                                EventType::Deleted => self.removed(source, &event.object),
                                _ => self.set(source, &event.object, event.previous.as_deref()),
                            });
                        }
                    }
                    Err(_) => {
                        // Too many changes at once: start over from all there is.
                        let follower = &mut self.followers[index];
                        let (objects, _, cursor) = follower.cache.list_and_watch(None);
                        follower.cursor = cursor;
                        let now = self.now();
                        self.state.retain(source, &objects, now);
                        objects.iter().for_each(|object| self.resync(source, object));
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
            self.waiting.remove(key.as_str());
            if self.reports.withdraw(&key) {
                self.preempting.remove(key.as_str());
            }
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
        self.begin_attempt(pod, begun);
        #[cfg(test)]
        panic_tests::trap(pod);
        let extenders = self.extenders.choosers(pod);
        if !extenders.is_empty() {
            return self.consult(pod, extenders, now);
        }
        let placed = self.state.placer.place(pod);
        self.metrics.decided(begun.elapsed());
        self.record_choice(pod, placed.as_ref().ok().copied());
        match placed {
            Ok(node) => self.settle(pod, node),
            Err(why) => {
                self.mark_unschedulable(pod, why, now);
                self.metrics.attempted(&pod.scheduler, AttemptResult::Unschedulable, begun.elapsed());
            }
        }
    }
}
