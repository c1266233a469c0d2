//! Schedules probes: one timer for the whole node.

use coracle_trace::{Span, Stage, stage_named};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

use super::check::{self, Outcome};
use super::threshold::{ProbeKind, ThresholdCounter};
use crate::events::{Kind, Recorder};
use crate::objects::Wake;
use crate::pod::plan::Verdict;
use crate::pod::spec;
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_engine::runtime::Runtime;

/// One probe of one running container.
#[derive(Clone)]
pub struct Target {
    /// Container id.
    pub id: String,
    /// Which probe.
    pub kind: ProbeKind,
    /// How it is made.
    pub probe: Probe,
    /// The container.
    pub container: Arc<Container>,
    /// The pod's address.
    pub ip: String,
    /// When the container started, nanoseconds since the epoch.
    pub started_at: i64,
    /// The verdict before the first check, if an earlier agent has reported one.
    pub initial: Option<bool>,
}

type Key = (String, ProbeKind);

struct Entry {
    uid: String,
    pod: Arc<Pod>,
    target: Target,
    count: ThresholdCounter,
    /// Checks that succeeded, and that did not.
    totals: (u64, u64),
    /// Until the first success. Most probes are past it.
    span: Option<Box<Span>>,
    /// Distinguishes it from an earlier entry of the same key whose timer is still queued.
    serial: u64,
}

impl Drop for Entry {
    /// A probe that is removed before its first success has not succeeded.
    fn drop(&mut self) {
        if let Some(span) = &mut self.span {
            span.failed();
        }
    }
}

/// How the checks of one probe went.
#[derive(Clone, Debug)]
pub struct ProbeTotal {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Which probe.
    pub kind: ProbeKind,
    /// Checks that succeeded.
    pub successes: u64,
    /// Checks that did not.
    pub failures: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    due: BinaryHeap<Reverse<(Instant, u64, Key)>>,
    serial: u64,
}

/// All probes of the node.
#[derive(Clone)]
pub struct Probes {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    runtime: Arc<dyn Runtime>,
    events: Recorder,
    wake: Wake,
    supervisor: Supervisor,
}

/// Task name in metrics and health pages.
const TASK: &str = "prober";
/// A container that has run for longer was started by an earlier agent.
const NEW: Duration = Duration::from_secs(10);
/// How often a check is made that ends in an error.
const MAX_TRIES: u32 = 3;
/// Delay before a check that panicked is repeated.
const PANIC_BACKOFF: Duration = Duration::from_secs(60);

impl Probes {
    /// No probes yet; `wake` is called with the uid of a pod whose verdicts changed.
    pub fn new(runtime: Arc<dyn Runtime>, events: Recorder, wake: Wake, supervisor: Supervisor) -> Self {
        Probes { state: Arc::default(), changed: Arc::default(), runtime, events, wake, supervisor }
    }

    /// Replaces the probes of a pod; unchanged ones keep their counts.
    pub fn set(&self, pod: &Arc<Pod>, targets: Vec<Target>) {
        let uid = spec::uid(pod).to_owned();
        let mut state = self.state.lock();
        let wanted: BTreeSet<Key> = targets.iter().map(|target| (target.id.clone(), target.kind)).collect();
        state.entries.retain(|key, entry| entry.uid != uid || wanted.contains(key) || entry.count.is_final());
        for target in targets {
            let key = (target.id.clone(), target.kind);
            if state.entries.contains_key(&key) {
                continue;
            }
            state.serial += 1;
            let serial = state.serial;
            let count = ThresholdCounter::new(
                target.kind,
                target.probe.success_threshold,
                target.probe.failure_threshold,
                target.initial,
            );
            state.due.push(Reverse((first_due(&target, serial), serial, key.clone())));
            let span = span(&target);
            let (uid, pod) = (uid.clone(), pod.clone());
            state.entries.insert(key, Entry { uid, pod, target, count, totals: (0, 0), span, serial });
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How the checks of every probe went.
    pub fn totals(&self) -> Vec<ProbeTotal> {
        let state = self.state.lock();
        let total = |((_, kind), entry): (&Key, &Entry)| ProbeTotal {
            namespace: spec::namespace(&entry.pod).to_owned(),
            pod: spec::name(&entry.pod).to_owned(),
            uid: entry.uid.clone(),
            container: entry.target.container.name.clone(),
            kind: *kind,
            successes: entry.totals.0,
            failures: entry.totals.1,
        };
        state.entries.iter().map(total).collect()
    }

    /// Drops the state of containers that are not among these.
    pub fn retain(&self, uid: &str, ids: &BTreeSet<&str>) {
        self.state.lock().entries.retain(|(id, _), entry| entry.uid != uid || ids.contains(id.as_str()));
    }

    /// Verdicts of a pod's containers, and whether those with a readiness probe are ready.
    pub fn verdicts(&self, uid: &str) -> (BTreeMap<String, Verdict>, BTreeMap<String, bool>) {
        let (mut verdicts, mut ready) = (BTreeMap::<String, Verdict>::new(), BTreeMap::new());
        for ((id, kind), entry) in self.state.lock().entries.iter().filter(|(_, entry)| entry.uid == uid) {
            match (kind, entry.count.verdict()) {
                (ProbeKind::Startup, started) => verdicts.entry(id.clone()).or_default().started = started,
                (ProbeKind::Liveness, alive) => {
                    verdicts.entry(id.clone()).or_default().dead = alive == Some(false)
                }
                (ProbeKind::Readiness, verdict) => {
                    ready.insert(id.clone(), verdict == Some(true));
                }
            }
        }
        (verdicts, ready)
    }

    /// Runs checks when they are due, until the process ends.
    pub async fn run(self) {
        loop {
            let next = self.start_due();
            match next {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at.into()) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Starts every check that is due; the time of the next one.
    fn start_due(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        loop {
            let Reverse((at, serial, key)) = state.due.peek()?.clone();
            let current = state
                .entries
                .get(&key)
                .is_some_and(|entry| entry.serial == serial && !entry.count.is_final());
            if !current {
                state.due.pop();
                continue;
            }
            if at > Instant::now() {
                return Some(at);
            }
            state.due.pop();
            if let Some(entry) = state.entries.get(&key) {
                let (target, pod, probes) = (entry.target.clone(), entry.pod.clone(), self.clone());
                tokio::spawn(async move { probes.one(key, serial, target, pod).await });
            }
        }
    }

    async fn one(&self, key: Key, serial: u64, target: Target, pod: Arc<Pod>) {
        let began = Instant::now();
        let check = check_with_retries(&*self.runtime, &target);
        let subject = || Subject::new("pods", spec::namespace(&pod), spec::name(&pod));
        let checked = self.supervisor.isolate(TASK, subject, check).await;
        let pause =
            if checked.is_ok() { period(&target.probe) } else { period(&target.probe).max(PANIC_BACKOFF) };
        let outcome = checked.unwrap_or_else(|panicked| {
            let text = format!("the {} probe panicked: {panicked}", target.kind.as_str());
            self.events.pod(&pod, Kind::Warning, "ReconcilePanicked", text);
            Outcome::Error(panicked.to_string())
        });
        let kind = target.kind.as_str();
        // An error says nothing about the container: it is reported and not counted.
        let (result, event) = match outcome {
            Outcome::Success => (Some(true), None),
            Outcome::Failure(text) => (Some(false), Some(format!("{kind} probe failed: {text}"))),
            Outcome::Error(text) => {
                (None, Some(format!("{kind} probe errored and resulted in unknown state: {text}")))
            }
        };
        let mut state = self.state.lock();
        // The probe was removed meanwhile: drops the result without an event.
        let Some(entry) = state.entries.get_mut(&key).filter(|entry| entry.serial == serial) else { return };
        if let Some(success) = result {
            let total = if success { &mut entry.totals.0 } else { &mut entry.totals.1 };
            *total += 1;
        }
        if result == Some(true)
            && let Some(span) = entry.span.take()
        {
            finish(*span, &entry.target, entry.totals);
        }
        let changed = result.is_some_and(|success| entry.count.count(success));
        let uid = entry.uid.clone();
        let next = (began + pause).max(Instant::now());
        state.due.push(Reverse((next, serial, key)));
        drop(state);
        if let Some(text) = event {
            self.events.container(&pod, &target.container.name, Kind::Warning, "Unhealthy", text);
        }
        self.changed.notify_one();
        if changed {
            (self.wake)(&uid);
        }
    }
}

/// One check; an error of the check itself, not of the container, is retried at once.
async fn check_with_retries(runtime: &dyn Runtime, target: &Target) -> Outcome {
    let mut tries = 1;
    loop {
        let outcome = check::check(runtime, &target.probe, &target.container, &target.id, &target.ip).await;
        if tries == MAX_TRIES || !matches!(outcome, Outcome::Error(_)) {
            return outcome;
        }
        tries += 1;
    }
}

/// The span of a probe that a new container waits for. Later results, and containers of an earlier agent, are not recorded.
fn span(target: &Target) -> Option<Box<Span>> {
    let is_waited_for = matches!(target.kind, ProbeKind::Startup | ProbeKind::Readiness);
    (is_waited_for && age(target) < NEW).then(|| Box::new(stage_named(Stage::Probe, &label(target))))
}

fn finish(mut span: Span, target: &Target, (successes, failures): (u64, u64)) {
    let tries = successes + failures;
    let plural = if tries == 1 { "try" } else { "tries" };
    span.rename(&format!("{}\n{tries} {plural}", label(target)));
    span.code(u16::try_from(tries).unwrap_or(u16::MAX));
}

fn label(target: &Target) -> String {
    format!("{} {}", target.kind.as_str().to_ascii_lowercase(), target.container.name)
}

/// How long the container has been running.
fn age(target: &Target) -> Duration {
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    Duration::from_nanos(u64::try_from(now.saturating_sub(target.started_at)).unwrap_or(0))
}

fn period(probe: &Probe) -> Duration {
    let seconds = probe.period_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(10);
    Duration::from_secs(seconds.max(1))
}

/// The initial delay counts from the container's start, not from when we noticed it.
fn first_due(target: &Target, serial: u64) -> Instant {
    let delay =
        target.probe.initial_delay_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    let delay = Duration::from_secs(delay).saturating_sub(age(target));
    Instant::now() + delay.max(spread(target, serial))
}

/// A part of the period, different for each probe: a restarted agent does not make all its checks at once. Nobody waits
/// for these, the container is known to be ready or alive.
fn spread(target: &Target, serial: u64) -> Duration {
    let is_waited_for = match target.kind {
        ProbeKind::Startup => true,
        ProbeKind::Liveness => age(target) < NEW,
        ProbeKind::Readiness => target.initial != Some(true),
    };
    if is_waited_for {
        return Duration::ZERO;
    }
    // The golden ratio distributes consecutive numbers evenly.
    let part = serial.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let millis = u64::try_from(period(&target.probe).as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_mul(part) >> 32)
}

#[cfg(test)]
mod tests;
