//! What is recorded of scheduling: how long pods waited, attempts, and verdicts on nodes.

use super::{Runner, Tries};
use crate::attempt::Attempt;
use crate::diagnosis::{Diagnosis, histogram};
use crate::event_handlers::Source;
use crate::metrics::{Point, Status};
use crate::place::Choice;
use crate::pod::{PodInfo, PodKey};
use crate::scores::FULL;
use crate::snapshot::{NodeId, Snapshot};
use coracle_informer::cause;
use coracle_kinds::object::Object;
use coracle_trace::{Cause, Rank, Span, SpanId, Stage, caused_by, enter, stage_named};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many refused nodes are named one by one.
const NAMED: usize = 8;
/// Up to this many nodes are looked at once more to say why they were refused, although the pod has a node.
const EXPLAINED: usize = 64;
/// How many pods without a node are shown while they wait; the others when they are tried again.
const SHOWN: usize = 64;
/// This many attempts are recorded in any case; later ones with the same result less and less often.
const FIRST_ATTEMPTS: u32 = 3;
/// Shorter parts of an attempt are not recorded.
const LONG: Duration = Duration::from_micros(100);

impl Runner {
    /// Takes in an object although it did not change.
    pub(super) fn resync(&mut self, source: Source, object: &Arc<Object>) {
        let is_pod = source == Source::Pods;
        let cause = if is_pod { cause::of_object(object, Rank::Resync, self.spans) } else { Cause::NONE };
        caused_by(cause, || self.set(source, object, None));
    }

    /// Begins an attempt: counts it, and notes how long the pod waited for it.
    pub(super) fn begin_attempt(&mut self, pod: &PodInfo, begun: Instant) {
        let first = self.state.queue.ready_since(&pod.key).unwrap_or(begun);
        let tries = self.tries.entry(pod.key.clone()).or_insert_with(|| Tries::new(first));
        (tries.count, tries.latest) = (tries.count + 1, begun);
        if !self.spans.is_on() {
            return;
        }
        let (cause, mut waits) = self.state.queue.waited(&pod.key);
        // Earlier times that were not recorded are part of the first one.
        if let (Some(earlier), Some(wait)) = (tries.waits.first(), waits.first_mut()) {
            wait.since = earlier.since;
        }
        tries.waits = waits;
        tries.attempt = Attempt::begin(self.spans, cause, &pod.uid, begun, tries.count);
    }

    /// The attempt of a pod that was made last.
    pub(super) fn attempt(&self, key: &PodKey) -> Attempt {
        self.tries.get(key).map_or(Attempt::OFF, |tries| tries.attempt)
    }

    /// Records how a node was chosen.
    pub(super) fn record_choice(&mut self, pod: &Arc<PodInfo>, placed: Option<NodeId>) {
        let status = if placed.is_some() { Status::Success } else { Status::Unschedulable };
        let Choice { filtered, scored, .. } = *self.state.placer.last();
        if let Some((from, to)) = filtered {
            self.metrics.ran(&pod.scheduler, Point::Filter, status, to.duration_since(from));
        }
        if let Some((from, to)) = scored {
            self.metrics.ran(&pod.scheduler, Point::Score, status, to.duration_since(from));
        }
        let attempt = self.attempt(&pod.key);
        let Some(id) = placed.filter(|_| attempt.is_on()) else { return };
        self.record_waits(pod, &attempt);
        if let Some(times) = filtered {
            attempt.part(Stage::Filter, times, "");
        }
        if let Some((from, to)) = scored.filter(|(from, to)| filtered.is_some() || *to - *from >= LONG) {
            attempt.part(Stage::Score, (from, to), "");
        }
        let now = Instant::now();
        let text = verdict(self.state.placer.last(), &self.state.placer.snapshot, id);
        attempt.part(Stage::Verdict, (now, now), &text);
        if filtered.is_some() && self.state.placer.snapshot.node_count() <= EXPLAINED {
            record_refusals(&attempt, &self.state.placer.diagnose(pod));
        }
    }

    /// Records that a pod has no node; `news` if that was not known, or for another reason. Whether the attempt is to be recorded.
    pub(super) fn record_failure(
        &mut self,
        pod: &PodInfo,
        why: &Diagnosis,
        message: &str,
        news: bool,
    ) -> bool {
        let (attempt, count) = (self.attempt(&pod.key), self.tries.get(&pod.key).map_or(0, |t| t.count));
        if !attempt.is_on() || !(news || count <= FIRST_ATTEMPTS || count.is_power_of_two()) {
            return false;
        }
        self.record_waits(pod, &attempt);
        if let Some(times) = self.state.placer.last().filtered {
            attempt.part(Stage::Filter, times, "");
        }
        record_refusals(&attempt, why);
        if self.waiting.len() < SHOWN {
            let text = format!("\n{message}");
            let span = enter(attempt.above(), || stage_named(Stage::Unschedulable, &text));
            self.waiting.insert(pod.key.clone(), span);
        }
        true
    }

    /// Records how long a pod waited for its attempt. The span that showed it meanwhile is replaced.
    fn record_waits(&mut self, pod: &PodInfo, attempt: &Attempt) {
        let shown = self.waiting.remove(&pod.key);
        let mut id = shown.as_ref().map(Span::id);
        let waits = self.tries.get_mut(&pod.key).map(|tries| std::mem::take(&mut tries.waits));
        let message = self.state.queue.why(&pod.key).map_or("", |(_, message)| message.as_str());
        for wait in waits.iter().flatten() {
            let stuck = wait.stage == Stage::Unschedulable;
            let span = id.take_if(|_| stuck).unwrap_or_else(SpanId::fresh);
            attempt.waited(span, wait, if stuck { message } else { "" });
        }
        if let Some(shown) = shown {
            shown.discard();
        }
    }

    /// Ends the spans of pods that no longer wait, such as those that another scheduler bound.
    pub(super) fn forget_placed(&mut self) {
        let queue = &self.state.queue;
        self.waiting.retain(|key, _| queue.get(key).is_some());
    }
}

/// The scores of the chosen node and of those that come next, on upstream's scale: `node1=287 node2=285 of 212`.
fn verdict(choice: &Choice, snapshot: &Snapshot, chosen: NodeId) -> String {
    let name = |id: NodeId| snapshot.node(id).map_or("", |node| node.name.as_str());
    let scores: Vec<String> =
        choice.scores.iter().map(|(id, score)| format!("{}={}", name(*id), score / (FULL / 100))).collect();
    let nodes = snapshot.node_count();
    match choice.reason {
        "" if scores.is_empty() => format!("{} of {nodes}", name(chosen)),
        "" => format!("{} of {nodes}", scores.join(" ")),
        reason => format!("{} of {nodes}\n{reason}", name(chosen)),
    }
}

/// Records which nodes were refused and why: one by one, and the rest together.
fn record_refusals(attempt: &Attempt, why: &Diagnosis) {
    let now = Instant::now();
    let refuse = |nodes: &str, reason: String| {
        attempt.failed_part(Stage::Verdict, (now, now), &format!("{nodes}\n{reason}"));
    };
    if let Some((plugin, reason)) = &why.general {
        refuse("all nodes", format!("{plugin:?}: {reason}"));
    }
    for (node, rejection) in why.rejections.iter().take(NAMED) {
        refuse(node, format!("{:?}: {}", rejection.plugin, rejection.reasons.join(", ")));
    }
    if let Some(rest) = why.rejections.get(NAMED..).filter(|rest| !rest.is_empty()) {
        let reasons = rest.iter().flat_map(|(_, r)| r.reasons.iter().map(|reason| (&**reason, 1)));
        refuse(&format!("{} more nodes", rest.len()), histogram(reasons));
    }
    if let Some(others) = &why.others {
        refuse("other nodes", others.clone());
    }
}
