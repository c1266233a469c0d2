//! Pods that wait for a node: ready to try, backing off, waiting for something to change, or held by gates.
//!
//! Time is passed in as milliseconds, so that tests need no clock.

pub use super::backoff::{Backoff, Millis};
use super::diagnosis::Diagnosis;
use super::filters;
use super::pod::{PodInfo, PodKey};
use super::rejection::Plugin;
use super::snapshot::{NodeId, Snapshot};
use super::waits::{Waited, Waits};
use crate::metrics::Size;
use coracle_trace::Cause;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// After this long, a pod is tried again even if nothing seems to have changed.
const PATIENCE: Millis = 300_000;

/// What happened that may help a pod.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A node came or changed.
    Node(NodeId),
    /// A node is gone: what is spread over nodes is spread over fewer.
    NodeGone,
    /// A pod left a node, or asks for less.
    Gone(&'a PodInfo, Option<NodeId>),
    /// A pod got a node.
    Placed(&'a PodInfo),
    /// A claim, volume or storage class changed.
    Storage,
    /// A device, a class of devices or a claim of devices changed.
    Devices,
}

impl Event<'_> {
    /// What happened, as the end of a pod's wait.
    fn name(&self) -> &'static str {
        match self {
            Self::Node(_) => "node added or changed",
            Self::NodeGone => "node gone",
            Self::Gone(..) => "pod gone",
            Self::Placed(_) => "pod placed",
            Self::Storage => "storage changed",
            Self::Devices => "devices changed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ready,
    /// May be taken early.
    BackingOff,
    /// After an error: not before its time.
    Retrying,
    Unschedulable,
    Gated,
}

impl Stage {
    /// What the time in it is recorded as.
    fn span(self) -> coracle_trace::Stage {
        match self {
            Self::Ready => coracle_trace::Stage::SchedulerQueue,
            Self::BackingOff | Self::Retrying => coracle_trace::Stage::SchedulerBackoff,
            Self::Unschedulable => coracle_trace::Stage::Unschedulable,
            Self::Gated => coracle_trace::Stage::Gated,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    pod: Arc<PodInfo>,
    stage: Stage,
    /// Heap entries with another stamp are void.
    stamp: u64,
    arrived: u64,
    attempts: u32,
    backoff_until: Millis,
    unschedulable_since: Millis,
    rejected: BTreeSet<Plugin>,
    why: Option<(Arc<Diagnosis>, String)>,
    waits: Waits,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    pods: HashMap<PodKey, Waiting>,
    ready: BinaryHeap<(i32, Reverse<u64>, u64, PodKey)>,
    backing_off: BinaryHeap<(Reverse<Millis>, u64, PodKey)>,
    retrying: BinaryHeap<(Reverse<Millis>, u64, PodKey)>,
    /// By class; entries with another stamp are void.
    unschedulable: HashMap<u64, Vec<(PodKey, u64)>>,
    /// How many pods are in each stage.
    stages: [usize; 5],
    stamp: u64,
    backoff: Backoff,
}

impl Queue {
    /// With another backoff than the default one.
    pub fn with_backoff(backoff: Backoff) -> Self {
        Self { backoff, ..Self::default() }
    }

    /// A pod without a node came or changed; a changed one is tried at once when the change may help.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        let key = pod.key.clone();
        let stage = if pod.gates.is_empty() { Stage::Ready } else { Stage::Gated };
        self.stamp += 1;
        match self.pods.get_mut(&key) {
            Some(waiting) => {
                let before = (waiting.stage, waiting.pod.class);
                let same = before.1 == pod.class && waiting.pod.labels == pod.labels;
                waiting.pod = pod;
                waiting.waits.changed();
                if before.0 != stage && (before.0 == Stage::Gated || stage == Stage::Gated || !same) {
                    waiting.backoff_until = 0;
                    let gates_gone = before.0 == Stage::Gated;
                    self.enter(&key, stage, if gates_gone { "gates removed" } else { "pod changed" });
                }
            }
            None => {
                let waiting = Waiting {
                    pod,
                    stage,
                    stamp: 0,
                    arrived: self.stamp,
                    attempts: 0,
                    backoff_until: 0,
                    unschedulable_since: 0,
                    rejected: BTreeSet::new(),
                    why: None,
                    waits: Waits::enqueued(),
                };
                self.pods.insert(key.clone(), waiting);
                self.stages[stage as usize] += 1;
                self.enter(&key, stage, "");
            }
        }
    }

    /// Puts a pod into a stage; `event` ended the one before.
    fn enter(&mut self, key: &PodKey, stage: Stage, event: &'static str) {
        self.stamp += 1;
        let Some(waiting) = self.pods.get_mut(key) else { return };
        let is_ready = stage == Stage::Ready;
        if waiting.stamp == 0 {
            waiting.waits.begin(is_ready);
        } else {
            waiting.waits.leave(waiting.stage.span(), event, is_ready);
        }
        self.stages[waiting.stage as usize] -= 1;
        self.stages[stage as usize] += 1;
        waiting.stage = stage;
        waiting.stamp = self.stamp;
        match stage {
            Stage::Ready => {
                self.ready.push((waiting.pod.priority, Reverse(waiting.arrived), self.stamp, key.clone()));
            }
            Stage::BackingOff => {
                self.backing_off.push((Reverse(waiting.backoff_until), self.stamp, key.clone()))
            }
            Stage::Retrying => self.retrying.push((Reverse(waiting.backoff_until), self.stamp, key.clone())),
            Stage::Unschedulable => {
                self.unschedulable.entry(waiting.pod.class).or_default().push((key.clone(), self.stamp))
            }
            Stage::Gated => {}
        }
    }

    /// A pod was deleted or bound.
    pub fn remove(&mut self, key: &str) {
        if let Some(waiting) = self.pods.remove(key) {
            self.stages[waiting.stage as usize] -= 1;
        }
    }

    /// The next pod to try: the most important, then the one that waits longest. When none is ready, pods that back off
    /// are taken early rather than to sit idle.
    pub fn pop(&mut self, now: Millis) -> Option<Arc<PodInfo>> {
        for heap in [&mut self.backing_off, &mut self.retrying] {
            while heap.peek().is_some_and(|(Reverse(until), ..)| *until <= now) {
                if let Some((_, stamp, key)) = heap.pop()
                    && let Some(waiting) = self.pods.get_mut(&key).filter(|w| w.stamp == stamp)
                {
                    self.stamp += 1;
                    self.stages[waiting.stage as usize] -= 1;
                    self.stages[Stage::Ready as usize] += 1;
                    waiting.waits.leave(waiting.stage.span(), "", true);
                    (waiting.stage, waiting.stamp) = (Stage::Ready, self.stamp);
                    self.ready.push((waiting.pod.priority, Reverse(waiting.arrived), self.stamp, key));
                }
            }
        }
        loop {
            let (stamp, key) = match self.ready.pop() {
                Some((_, _, stamp, key)) => (stamp, key),
                None => self.backing_off.pop().map(|(_, stamp, key)| (stamp, key))?,
            };
            let Some(waiting) = self.pods.get_mut(&key).filter(|w| w.stamp == stamp) else { continue };
            waiting.attempts += 1;
            waiting.stamp = 0;
            waiting.waits.leave(waiting.stage.span(), "", true);
            // One that is being tried is not one that backs off, whatever changes meanwhile.
            self.stages[waiting.stage as usize] -= 1;
            self.stages[Stage::Ready as usize] += 1;
            waiting.stage = Stage::Ready;
            return Some(waiting.pod.clone());
        }
    }

    /// A popped pod is unschedulable. Returns whether its message has changed.
    pub fn mark_unschedulable(
        &mut self,
        key: &PodKey,
        why: Arc<Diagnosis>,
        message: String,
        now: Millis,
    ) -> bool {
        let Some(waiting) = self.pods.get_mut(key) else { return false };
        waiting.rejected = why.plugins();
        waiting.unschedulable_since = now;
        waiting.backoff_until = now + self.backoff.after(waiting.attempts);
        let news = waiting.why.as_ref().is_none_or(|(_, before)| *before != message);
        waiting.why = Some((why, message));
        self.enter(key, Stage::Unschedulable, "");
        news
    }

    /// A popped pod failed temporarily, such as by a conflict: it is retried with backoff.
    pub fn retry(&mut self, key: &PodKey, now: Millis) {
        let Some(waiting) = self.pods.get_mut(key) else { return };
        waiting.backoff_until = now + self.backoff.after(waiting.attempts);
        self.enter(key, Stage::Retrying, "");
    }

    /// Requeues the unschedulable pods that an event may help.
    pub fn on_event(&mut self, event: Event, snapshot: &Snapshot, now: Millis) {
        let mut helped: Vec<(PodKey, u64)> = Vec::new();
        self.unschedulable.retain(|_, keys| {
            let pods = &self.pods;
            keys.retain(|(key, stamp)| pods.get(key).is_some_and(|waiting| waiting.stamp == *stamp));
            // Pods of a class are alike: what helps one helps all.
            let sample = keys.first().and_then(|(key, _)| pods.get(key));
            let Some(sample) = sample else { return false };
            if !helps(sample, event, snapshot) {
                return true;
            }
            helped.append(keys);
            false
        });
        for (key, _) in helped {
            self.requeue(&key, now, event.name());
        }
    }

    fn requeue(&mut self, key: &PodKey, now: Millis, event: &'static str) {
        let until = self.pods.get(key).map_or(0, |w| w.backoff_until);
        self.enter(key, if until <= now { Stage::Ready } else { Stage::BackingOff }, event);
    }

    /// Requeues an unschedulable pod.
    pub fn activate(&mut self, key: &PodKey, now: Millis) {
        if self.pods.get(key).is_some_and(|w| w.stage == Stage::Unschedulable && w.stamp != 0) {
            self.requeue(key, now, "victims evicted");
        }
    }

    /// Requeues pods that have been unschedulable for long. Call it periodically.
    pub fn flush(&mut self, now: Millis) {
        let old = self.pods.iter().filter(|(_, w)| {
            w.stage == Stage::Unschedulable && now.saturating_sub(w.unschedulable_since) > PATIENCE
        });
        let old: Vec<PodKey> = old.map(|(key, _)| key.clone()).collect();
        for key in old {
            self.requeue(&key, now, "flush");
        }
    }

    /// When the next pod that failed is to be tried again.
    pub fn next_due(&self) -> Option<Millis> {
        self.retrying.peek().map(|(Reverse(until), ..)| *until)
    }

    /// Whether a pod can be popped without waiting.
    pub fn has_ready(&self) -> bool {
        !(self.ready.is_empty() && self.backing_off.is_empty())
    }

    /// A waiting pod.
    pub fn get(&self, key: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(key).map(|w| &w.pod)
    }

    /// Why a pod is pending: the diagnosis and its summary.
    pub fn why(&self, key: &str) -> Option<&(Arc<Diagnosis>, String)> {
        self.pods.get(key)?.why.as_ref()
    }

    /// The cause of a popped pod's attempt, and how long it was waited for. The times are given once.
    pub fn waited(&mut self, key: &str) -> (Cause, Vec<Waited>) {
        self.pods.get_mut(key).map(|w| w.waits.take()).unwrap_or_default()
    }

    /// When a pod could be tried for the first time; scheduling gates do not count.
    pub fn ready_since(&self, key: &str) -> Option<Instant> {
        self.pods.get(key)?.waits.ready_since()
    }

    /// Keys of all pods that wait.
    pub fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// How many pods wait.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// How many pods wait for what.
    pub fn size(&self) -> Size {
        let of = |stage: Stage| self.stages[stage as usize];
        Size {
            active: of(Stage::Ready),
            backoff: of(Stage::BackingOff) + of(Stage::Retrying),
            unschedulable: of(Stage::Unschedulable),
            gated: of(Stage::Gated),
            ..Size::default()
        }
    }

    /// Whether no pod waits.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

/// Whether an event may help a pod, or change what it has to say.
fn helps(waiting: &Waiting, event: Event, snapshot: &Snapshot) -> bool {
    let (pod, rejected) = (&waiting.pod, &waiting.rejected);
    let any = |plugins: &[Plugin]| plugins.iter().any(|p| rejected.contains(p));
    let by_pods = any(&[Plugin::PodTopologySpread, Plugin::InterPodAffinity]);
    let verdict = |id: Option<NodeId>| {
        let node = id.and_then(|id| snapshot.node(id))?;
        let local = || filters::local(pod, node, &snapshot.devices);
        Some(filters::fixed(pod, node).and_then(|()| if by_pods { Ok(()) } else { local() }))
    };
    match event {
        // Refused when there were no nodes at all, no rule is named.
        Event::Node(_) if rejected.is_empty() => true,
        // What an extender goes by is not known here.
        Event::Node(_) | Event::Gone(..) if any(&[Plugin::Extender]) => true,
        Event::Node(id) => match verdict(Some(id)) {
            Some(Ok(())) => true,
            Some(Err(now)) => {
                let name = snapshot.node(id).map(|n| n.name.as_str()).unwrap_or_default();
                let before = waiting.why.as_ref().and_then(|(why, _)| why.of_node(name));
                before.is_some_and(|before| *before != now)
            }
            None => false,
        },
        Event::NodeGone => any(&[Plugin::PodTopologySpread]),
        Event::Gone(gone, id) => {
            let room = || matches!(verdict(id), Some(Ok(())));
            (any(&[Plugin::NodeResourcesFit, Plugin::NodePorts]) && room())
                || (any(&[Plugin::VolumeRestrictions]) && gone.namespace == pod.namespace)
                || (any(&[Plugin::NodeVolumeLimits]) && !gone.claims.is_empty())
                || (by_pods && concerns(pod, gone, snapshot))
        }
        Event::Placed(placed) => by_pods && concerns(pod, placed, snapshot),
        Event::Storage => any(&[
            Plugin::VolumeBinding,
            Plugin::VolumeZone,
            Plugin::VolumeRestrictions,
            Plugin::NodeVolumeLimits,
        ]),
        // A class may be behind a resource that no node has.
        Event::Devices => {
            any(&[Plugin::DynamicResources])
                || (any(&[Plugin::NodeResourcesFit]) && !pod.extended_uses.is_empty())
        }
    }
}

/// Whether one pod's rules are about the other.
fn concerns(pod: &PodInfo, other: &PodInfo, snapshot: &Snapshot) -> bool {
    let mut own = pod.affinity.iter().chain(&pod.anti_affinity).chain(pod.spread.iter().map(|s| &s.term));
    // Pods that are going have stopped counting for spread, which is why they matter here.
    own.any(|t| other.is_subject_of(t, &snapshot.namespaces))
        || other.anti_affinity.iter().any(|t| pod.is_subject_of(t, &snapshot.namespaces))
}
