//! What is recorded of one pod: its start, its end, and what it waits for in between.

use coracle_trace::{
    Flags, Moment, Record, Scope, Span, SpanId, Stage, TraceId, Uid, enter, stage, stage_named,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::clock::now;
use super::desired::Desired;
use super::stage::EndReason;
use crate::pod::observed::{Instance, Observed, State};
use crate::pod::spec::{self, Role};
use crate::status::phase::Phase;
use crate::trace::NodeTrace;
use crate::trace::metrics::PodStartTimes;

/// A pass that began nothing and took less is not recorded.
const SHORT_PASS: Duration = Duration::from_millis(1);
/// The same for a pod that neither starts nor ends: it is looked at again and again for nothing.
const SHORT_PASS_OF_RUNNING: Duration = Duration::from_millis(100);

/// Reports of a pod that became ready may wait for each other so long, and are a part of its start.
const SETTLES: Duration = Duration::from_secs(10);

/// The spans of a pod. All that is done for the pod hangs below its start, then below its end. What happens in between, to a pod that was
/// ready once, is another operation: it hangs below what caused it (an exit, an eviction, a change of the spec), or is a root itself.
pub(super) struct PodTrace {
    node: NodeTrace,
    uid: Uid,
    /// Of the object that the pod was started or terminated with.
    revision: u64,
    /// Whether the pod is meant to end by itself: its exits are a part of what it was started for.
    runs_to_end: bool,
    /// The parent of what is done for the pod now.
    below: SpanId,
    /// Until the pod is ready, or ends.
    start: Option<Span>,
    /// When what is done for a pod that became ready is no part of its start any more, or of what followed from an exit.
    settles: Option<Instant>,
    /// Since a container of a pod that was ready has ended, until the pod is ready again.
    recovers: bool,
    /// Until the pod is gone.
    end: Option<Span>,
    /// The pass that runs, until it begins something, and since when; shorter ones are not recorded.
    pass: Option<(Span, Instant, Duration)>,
    /// Containers that wait to be restarted.
    backoffs: HashMap<String, Span>,
    /// Since when the first status is held back.
    held: Option<Instant>,
    /// When the agent saw a new pod, until the pod runs.
    seen: Option<Instant>,
    /// What ended before, in nanoseconds since the epoch, was recorded by an earlier worker.
    began: i64,
}

impl PodTrace {
    /// `received` is when the pod arrived at this node.
    pub(super) fn new(node: &NodeTrace, desired: &Desired, received: Option<Instant>) -> Self {
        let pod = desired.pod();
        let uid = Uid::of(spec::uid(pod));
        let mut trace = PodTrace {
            node: node.clone(),
            uid,
            revision: revision(pod),
            runs_to_end: spec::spec(pod).restart_policy.as_deref().is_some_and(|policy| policy != "Always"),
            below: SpanId::of_stage(uid, Stage::PodStart),
            start: None,
            settles: None,
            recovers: false,
            end: None,
            pass: None,
            backoffs: HashMap::new(),
            held: None,
            seen: None,
            began: now(),
        };
        // What an earlier agent was killed in goes on with the revision that it began with: the pod has reports since, which are below it.
        let (start, end) = (node.take_cut(uid, Stage::PodStart), node.take_cut(uid, Stage::Terminate));
        let goes_on = if desired.is_deleting() { end } else { start };
        trace.revision = goes_on.unwrap_or(trace.revision);
        // A pod that runs already was seen by an earlier agent.
        let is_news = is_new(pod) || desired.is_deleting() || goes_on.is_some();
        if let Some(received) = received {
            node.metrics.worker_started(received.elapsed());
            if is_news && goes_on.is_none() {
                trace.record_seen(seen_once(uid, desired.is_deleting()), received);
            }
        }
        if is_news && !desired.is_deleting() {
            trace.seen = received;
            trace.start = Some(enter(trace.scope(), || stage(Stage::PodStart)));
        }
        if !is_news && !trace.runs_to_end {
            trace.below = SpanId::NONE;
        }
        trace
    }

    /// For what is done for the pod now.
    pub(super) fn scope(&self) -> Scope {
        Scope::of_pod(self.node.recorder, self.uid, self.revision).below(self.below)
    }

    fn record_seen(&self, id: SpanId, received: Instant) {
        let parent = SpanId::of_write(self.uid, self.revision);
        let (from, to) = (self.node.moment(received), self.node.recorder.now());
        self.record_as(id, Stage::Seen, parent, (from, to));
    }

    /// Records a span whose id the next agent can compute. It records the same again if this one is killed before the server hears of it.
    fn record_as(&self, span: SpanId, stage: Stage, parent: SpanId, (start, end): (Moment, Moment)) {
        let record = Record {
            stage,
            flags: Flags::NONE,
            code: 0,
            span,
            parent,
            trace: TraceId::NONE,
            subject: self.uid,
            revision: self.revision,
            start,
            duration: end.nanos_since(start),
        };
        self.node.recorder.push(&record, None, "");
    }

    fn record_since(&self, stage: Stage, parent: SpanId, since: Instant) {
        let recorder = self.node.recorder;
        let (from, to) = (self.node.moment(since), recorder.now());
        recorder.span_at(stage, parent, (self.uid, self.revision), from, to, "", 0);
    }

    /// The object changed. Its own status, which comes back from the server, is no news.
    pub(super) fn updated(&mut self, old: &Pod, new: &Pod, received: Instant) {
        let asked = |pod: &Pod| (pod.metadata.generation, pod.metadata.deletion_timestamp.clone());
        if asked(old) != asked(new) {
            self.revision = revision(new);
            let is_deleted = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
            let id = match is_deleted(new) && !is_deleted(old) {
                true => seen_once(self.uid, true),
                false => SpanId::of_write(self.uid, self.revision).of_mark(Stage::Seen.code()),
            };
            self.record_seen(id, received);
            if self.start.is_none() && self.end.is_none() && !self.runs_to_end {
                (self.below, self.settles) = (SpanId::of_write(self.uid, self.revision), None);
            }
        }
    }

    /// The object was deleted; `last` is its last state, where that is known.
    pub(super) fn gone(&mut self, last: Option<&Pod>) {
        if let Some(last) = last.filter(|_| self.end.is_none()) {
            self.revision = revision(last);
        }
    }

    /// A pass begins.
    pub(super) fn pass_begins(&mut self) {
        if self.settles.take_if(|at| *at <= Instant::now()).is_some() && !self.runs_to_end {
            self.below = SpanId::NONE;
        }
        // What it is at the begin counts: a pass that makes a pod ready is the last part of its start.
        let is_settled = self.start.is_none() && self.end.is_none();
        let short = if is_settled { SHORT_PASS_OF_RUNNING } else { SHORT_PASS };
        self.pass = Some((enter(self.scope(), || stage(Stage::Sync)), Instant::now(), short));
    }

    /// The pass has decided and begins a job.
    pub(super) fn job_begins(&mut self) {
        self.pass = None;
    }

    /// The pass ends.
    pub(super) fn pass_ends(&mut self) {
        if let Some((span, ..)) = self.pass.take_if(|(_, begun, short)| begun.elapsed() < *short) {
            span.discard();
        }
        self.pass = None;
    }

    /// Records what ended since the last observation, with the times of the runtime.
    pub(super) fn observed(&mut self, spec: &PodSpec, before: &Observed, after: &Observed) {
        let ended =
            |instance: &&Instance| instance.state == State::Exited && instance.finished_at >= self.began;
        let is_known = |instance: &Instance| {
            before.instances.iter().any(|old| old.id == instance.id && old.state == State::Exited)
        };
        let new: Vec<&Instance> =
            after.instances.iter().rev().filter(ended).filter(|it| !is_known(it)).collect();
        for instance in new {
            self.record_exit(spec, instance);
        }
    }

    fn record_exit(&mut self, spec: &PodSpec, instance: &Instance) {
        let recorder = self.node.recorder;
        let Some(clock) = recorder.clock() else { return };
        let at = |unix: i64| clock.at_unix(u64::try_from(unix).unwrap_or(0));
        let code = u16::try_from(instance.exit_code).unwrap_or(u16::MAX);
        let (about, finished) = ((self.uid, self.revision), at(instance.finished_at));
        if spec::container(spec, &instance.name).is_some_and(|(role, _)| role == Role::Init) {
            let (started, name) = (at(instance.started_at), &instance.name);
            recorder.span_at(Stage::InitRun, self.below, about, started, finished, name, code);
            return;
        }
        // While the pod starts, recovers or ends, an exit is part of that. Otherwise it is the cause of what follows.
        let is_settled = self.start.is_none() && self.end.is_none() && !self.recovers;
        let is_cause = is_settled && !self.runs_to_end;
        let parent = if is_cause { SpanId::NONE } else { self.below };
        let text = format!("{}\n{}", instance.name, instance.reason);
        let exit = recorder.span_at(Stage::Exit, parent, about, finished, finished, &text, code);
        if is_cause {
            (self.below, self.recovers, self.settles) = (exit, true, None);
        }
    }

    /// A container waits to be restarted.
    pub(super) fn waits(&mut self, container: &str, message: &str) {
        if !self.backoffs.contains_key(container) {
            let text = format!("{container}\n{message}");
            let span = enter(self.scope(), || stage_named(Stage::CrashBackoff, &text));
            self.backoffs.insert(container.to_owned(), span);
        }
    }

    /// A container is started.
    pub(super) fn starts(&mut self, container: &str) {
        self.backoffs.remove(container);
    }

    /// The status is not reported yet.
    pub(super) fn status_held(&mut self) {
        self.held.get_or_insert_with(Instant::now);
    }

    /// The status is reported, or will hang below something that begins now.
    pub(super) fn status_reported(&mut self) {
        if let Some(since) = self.held.take() {
            self.record_since(Stage::StatusHeld, self.below, since);
        }
    }

    /// The status of the pod was generated.
    pub(super) fn status(&mut self, pod: &Pod, phase: Phase, status: &PodStatus, observed: &Observed) {
        if phase == Phase::Running
            && let Some(seen) = self.seen.take()
        {
            self.node.metrics.pod_started(spec::uid(pod), start_times(pod, seen, observed));
        }
        if (self.start.is_some() || self.recovers) && is_ready(status) {
            let now = self.node.recorder.now();
            self.record_as(self.ready_id(), Stage::Ready, self.below, (now, now));
            (self.start, self.recovers) = (None, false);
            self.settles = Some(Instant::now() + SETTLES);
        }
    }

    /// A pod is ready once for its start, and once for what followed from an exit.
    fn ready_id(&self) -> SpanId {
        match self.recovers {
            true => self.below.of_mark(Stage::Ready.code()),
            false => SpanId::of_stage(self.uid, Stage::Ready),
        }
    }

    /// The pod is terminated: by its deletion, by the node for a reason, or because it has completed.
    pub(super) fn terminates(&mut self, is_deleting: bool, reason: Option<&EndReason>) {
        self.backoffs.clear();
        self.status_reported();
        (self.seen, self.settles, self.recovers) = (None, None, false);
        let start = self.start.take();
        if let Some(end) = reason {
            match start {
                Some(mut start) => {
                    start.failed();
                    start.rename(&format!("\n{}", end.reason));
                }
                None if !is_deleting => self.evicted(end),
                None => {}
            }
        }
        if is_deleting {
            self.ends();
        }
    }

    /// The node ends a pod that was ready once: the root of what follows. The object stays until somebody deletes it.
    fn evicted(&mut self, end: &EndReason) {
        let (recorder, about) = (self.node.recorder, (self.uid, self.revision));
        let name = if end.reason == "Evicted" { "" } else { end.reason.as_str() };
        let text = format!("{name}\n{}", end.message);
        let now = recorder.now();
        self.below = recorder.span_at(Stage::Evicted, SpanId::NONE, about, now, now, &text, 0);
    }

    /// The pod is deleted, and what is left of it is removed.
    pub(super) fn ends(&mut self) {
        if self.end.is_none() {
            self.status_reported();
            self.end = Some(enter(self.scope(), || stage(Stage::Terminate)));
            self.below = SpanId::of_stage(self.uid, Stage::Terminate);
        }
    }

    /// The worker panicked: the next one begins these spans anew.
    pub(super) fn abandon(&mut self) {
        let waiting = self.backoffs.drain().map(|(_, span)| span);
        waiting.chain(self.start.take()).chain(self.end.take()).for_each(Span::discard);
        if let Some((pass, ..)) = self.pass.take() {
            pass.discard();
        }
    }

    /// Nothing is done for the pod any more, or not before it is deleted.
    pub(super) fn ended(&mut self, uid: &str) {
        self.end = None;
        self.node.metrics.forget(uid);
    }
}

impl Drop for PodTrace {
    /// The agent stops and the pod goes on: these spans have not ended, and the next agent finds them like that.
    fn drop(&mut self) {
        let waiting = self.backoffs.drain().map(|(_, span)| span);
        waiting.chain(self.start.take()).chain(self.end.take()).for_each(std::mem::forget);
    }
}

/// The id of the moment in which a node saw a pod for the first time, or its deletion. The revision is no part of it: an agent that is
/// started again may see a later one.
fn seen_once(uid: Uid, is_deleting: bool) -> SpanId {
    match is_deleting {
        true => SpanId::of_stage(uid, Stage::Terminate).of_mark(Stage::Seen.code()),
        false => SpanId::of_stage(uid, Stage::Seen),
    }
}

/// The revision of an object; 0 for one that the API server does not have.
fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Whether the pod was not started before, by an earlier agent.
fn is_new(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_none_or(|phase| phase == Phase::Pending.as_str())
}

fn is_ready(status: &PodStatus) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn start_times(pod: &Pod, seen: Instant, observed: &Observed) -> PodStartTimes {
    let spec = spec::spec(pod);
    let nanos = |count: i128| Duration::from_nanos(u64::try_from(count).unwrap_or(0));
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let since_created = created
        .map(|created| nanos(Timestamp::now().as_nanosecond() - created.as_nanosecond()))
        .unwrap_or_else(|| seen.elapsed());
    let is_init = |name: &str| spec::container(&spec, name).is_some_and(|(role, _)| role == Role::Init);
    let runs = observed.instances.iter().filter(|run| run.state == State::Exited && is_init(&run.name));
    let init = runs.map(|run| nanos(i128::from(run.finished_at) - i128::from(run.started_at))).sum();
    let has_network = spec.host_network != Some(true);
    PodStartTimes { since_seen: seen.elapsed(), since_created, init, has_network }
}

#[cfg(test)]
mod tests;
