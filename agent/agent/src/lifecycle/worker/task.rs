//! The worker of one pod: takes messages and makes passes.

use coracle_cli::causes;
use coracle_trace::{enter, within};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::clock::from_now;
use super::containers::{Resizes, Retries};
use super::desired::Desired;
use super::known::Known;
use super::shared::{TASK, WorkerParts, subject};
use super::stage::{EndReason, Stage, Step, Termination, Volumes};
use super::tasks::Tasks;
use super::trace::PodTrace;
use crate::lifecycle::execute::Executor;
use crate::lifecycle::execute::outcome::Outcome;
use crate::lifecycle::observe;
use crate::lifecycle::table::{ContainerView, Message, PodView};
use crate::lifecycle::thread_wait::waited_for_thread;
use crate::pod::observed::Observed;
use crate::pod::{allocation, container_config, spec};

pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Interval of full resyncs, in case an event was lost.
const RESYNC: Duration = Duration::from_secs(300);

/// The worker of one pod.
pub(super) struct Worker {
    pub(super) parts: Arc<WorkerParts>,
    pub(super) executor: Arc<Executor>,
    /// The pod as it is desired, with the resources that it was given.
    pub(super) desired: Desired,
    /// The pod with the resources that it asks for, while it was not given these.
    pub(super) asked: Option<Arc<Pod>>,
    pub(super) stage: Stage,
    /// What the runtime has.
    pub(super) observed: Known<Observed>,
    /// What the API server has, as far as it was told.
    pub(super) status: Known<PodStatus>,
    pub(super) tasks: Tasks,
    pub(super) trace: PodTrace,
    /// Why the next pass is made, as metrics name it.
    pub(super) operation: &'static str,
    pub(super) retries: Retries,
    pub(super) resizes: Resizes,
    /// Whether its devices are allocated.
    pub(super) has_devices: bool,
    /// Ids of containers stopped to be replaced.
    pub(super) replaced: BTreeSet<String>,
    /// Who waits for the containers of the ended pod to be removed.
    pub(super) reclaims: Vec<oneshot::Sender<()>>,
    pub(super) began: Instant,
    pub(super) wake_at: Option<Instant>,
}

impl Worker {
    /// `received` is when a new pod arrived at this node.
    pub(super) fn new(
        parts: &Arc<WorkerParts>,
        mut desired: Desired,
        mailbox: UnboundedSender<Message>,
        received: Option<Instant>,
    ) -> Self {
        let trace = PodTrace::new(&parts.trace, &desired, received);
        let newest = desired.pod().clone();
        let status = parts.reporter.status(spec::uid(&newest)).or_else(|| newest.status.clone());
        let given = match parts.pods.allocated(spec::uid(&newest)) {
            Some(given) => allocation::keep(&newest, &given),
            None => status.as_ref().and_then(|status| allocation::recorded(&newest, status)),
        };
        let asked = given.as_ref().map(|_| newest);
        if let Some(given) = given {
            desired.update(given);
        }
        parts.pods.set_allocated(desired.pod());
        Worker {
            parts: parts.clone(),
            executor: parts.executor.clone(),
            desired,
            asked,
            stage: Stage::Pending,
            observed: Known::Outdated(Observed::default()),
            status: Known::Outdated(status.unwrap_or_default()),
            tasks: Tasks::new(mailbox),
            trace,
            operation: "create",
            retries: Retries::new(parts.executor.config.crash_loop_max),
            resizes: Resizes::default(),
            has_devices: false,
            replaced: BTreeSet::new(),
            reclaims: Vec::new(),
            began: Instant::now(),
            wake_at: None,
        }
    }

    pub(super) fn pod(&self) -> &Arc<Pod> {
        self.desired.pod()
    }

    /// The pod as its source wants it, for a worker that takes over.
    pub(super) fn newest(&self) -> Desired {
        let mut desired = self.desired.clone();
        if let Some(asked) = &self.asked {
            desired.update(asked.clone());
        }
        desired
    }

    pub(super) fn uid(&self) -> &str {
        spec::uid(self.pod())
    }

    pub(super) async fn run(&mut self, inbox: &mut UnboundedReceiver<Message>) {
        enter(self.trace.scope(), || waited_for_thread(self.began));
        loop {
            while let Ok(message) = inbox.try_recv() {
                if self.take(message) {
                    return;
                }
            }
            self.wake_at = None;
            let (begun, operation) = (Instant::now(), std::mem::replace(&mut self.operation, "sync"));
            let is_sync = !self.stage.is_ending();
            self.pass().await;
            if is_sync {
                self.parts.trace.metrics.worker_pass(operation, begun.elapsed());
            }
            self.parts.supervisor.release(TASK, || subject(self.pod()));
            let wake = self.wake_at.unwrap_or_else(|| Instant::now() + RESYNC);
            let message = tokio::select! {
                message = inbox.recv() => message,
                () = tokio::time::sleep_until(wake.into()) => {
                    // The resync reads everything again.
                    if self.wake_at.is_none() {
                        self.observed.outdate();
                    }
                    None
                }
            };
            if let Some(message) = message
                && self.take(message)
            {
                return;
            }
        }
    }

    pub(super) fn wake_in(&mut self, after: Duration) {
        let at = from_now(after);
        self.wake_at = Some(self.wake_at.map_or(at, |old| old.min(at)));
    }

    /// One reconciliation.
    async fn pass(&mut self) {
        if self.stage.step().is_none() {
            self.trace.pass_begins();
        }
        if !self.observed.is_outdated() || self.observe().await {
            self.steps().await;
        }
        self.reclaims.clear();
        self.trace.pass_ends();
    }

    /// Goes on from what was observed. Boxed, because the futures would be in the worker's twice.
    async fn steps(&mut self) {
        loop {
            let scope = self.trace.scope();
            match self.stage.step() {
                None => {
                    within(scope, Box::pin(self.sync())).await;
                    if !self.stage.is_ending() {
                        return;
                    }
                }
                Some(Step::Stopping(deadline)) => {
                    within(scope, Box::pin(self.stop_all(deadline))).await;
                    if matches!(self.stage.step(), Some(Step::Stopping(_))) {
                        return;
                    }
                }
                Some(Step::Stopped | Step::Released | Step::Removed) => {
                    within(scope, Box::pin(self.clean_up())).await;
                    return;
                }
            }
        }
    }

    /// Reads the state from the runtime; `false` on error, to be retried.
    pub(super) async fn observe(&mut self) -> bool {
        #[cfg(test)]
        trap::panic_if_marked(self.pod());
        let executor = &self.executor;
        let seen =
            observe::observe(&*executor.runtime, &executor.config, self.uid(), self.observed.get()).await;
        match seen {
            Ok(observed) => {
                self.trace.observed(&spec::spec(self.desired.pod()), self.observed.get(), &observed);
                self.observed = Known::Current(observed);
                self.publish_view();
                true
            }
            Err(error) => {
                tracing::warn!(uid = self.uid(), error = %causes::chain(&error), "runtime status not read, will retry");
                self.wake_in(RETRY);
                false
            }
        }
    }

    fn publish_view(&self) {
        let (config, observed) = (&self.executor.config, self.observed.get());
        let logs = config.pod_log_dir(spec::namespace(self.pod()), spec::name(self.pod()), self.uid());
        let containers = observed.instances.iter().map(|instance| ContainerView {
            name: instance.name.clone(),
            id: instance.id.clone(),
            attempt: instance.attempt,
            state: instance.state,
            log_path: match instance.log_path.as_str() {
                "" => logs.join(container_config::log_path(&instance.name, instance.attempt)),
                path => path.into(),
            },
        });
        let sandbox = observed.sandboxes.first();
        let view = PodView {
            sandbox: sandbox.map(|sandbox| sandbox.id.clone()),
            ips: self.ips(),
            containers: containers.collect(),
        };
        self.parts.pods.set_view(self.uid(), view);
    }

    pub(super) fn ips(&self) -> Vec<String> {
        if spec::spec(self.pod()).host_network == Some(true) {
            return self.executor.config.ips.clone();
        }
        self.observed.get().ready_sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
    }

    /// Handles a message; `true` if it was the last.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod, received) => self.updated(pod, received),
            Message::Gone(pod) => {
                self.trace.gone(pod.as_deref());
                self.asked = None;
                self.desired.remove(pod);
                self.shorten();
            }
            Message::Observe => self.observed.outdate(),
            Message::Verdicts => {}
            Message::Objects => self.refresh_volumes(),
            Message::Prepared(prepared) => self.refreshed(prepared),
            Message::Done(outcome, finished) => {
                enter(self.trace.scope(), || waited_for_thread(finished));
                self.done(*outcome);
            }
            Message::Stopped(id) => {
                self.tasks.stopping.remove(&id);
                self.observed.outdate();
            }
            Message::Evict { reason, message, disruption, grace } => {
                self.terminate(grace, Some(EndReason { reason, message, disruption }));
            }
            Message::Preempted => {
                if matches!(self.stage, Stage::Preempting) {
                    self.stage = Stage::Running(Volumes::Unprepared);
                }
            }
            Message::Reclaim(done) => self.reclaims.push(done),
            Message::Report => self.status.outdate(),
            Message::Deleted => {
                self.trace.ended(spec::uid(self.desired.pod()));
                self.parts.reporter.forget(self.uid());
                self.parts.pods.finish(self.uid(), self.desired.is_gone());
                return true;
            }
        }
        false
    }

    fn updated(&mut self, pod: Arc<Pod>, received: Instant) {
        let told = |pod: &Pod| {
            let containers = pod.spec.as_ref().map(|spec| spec.containers.clone());
            (pod.metadata.labels.clone(), pod.metadata.annotations.clone(), containers)
        };
        let changed = told(self.pod()) != told(&pod);
        self.trace.updated(self.desired.pod(), &pod, received);
        self.operation = "update";
        let given = allocation::keep(&pod, self.pod());
        self.asked = given.as_ref().map(|_| pod.clone());
        let pod = given.unwrap_or(pod);
        self.parts.pods.set_allocated(&pod);
        self.desired.update(pod);
        self.status.outdate();
        if changed {
            self.refresh_volumes();
        }
        self.shorten();
    }

    /// A second deletion may shorten the grace period.
    fn shorten(&mut self) {
        let Some(Step::Stopping(deadline)) = self.stage.step() else { return };
        let sooner = from_now(self.deletion_grace());
        if self.desired.is_deleting() && sooner + Duration::from_millis(500) < deadline {
            self.stage.advance(Step::Stopping(sooner));
            self.tasks.abort_stops();
            self.observed.outdate();
        }
    }

    /// Grace period of a deletion, at least one second.
    pub(super) fn deletion_grace(&self) -> Duration {
        Duration::from_secs(u64::try_from(spec::grace(self.pod())).unwrap_or(0).max(1))
    }

    fn done(&mut self, outcome: Outcome) {
        self.tasks.job = None;
        self.observed.outdate();
        if let Stage::Running(volumes) = &mut self.stage {
            volumes.record(outcome.prepared, outcome.volumes_failed);
        }
        if std::mem::take(&mut self.tasks.refresh_after_job) {
            self.refresh_volumes();
        }
        for start in outcome.started {
            self.retries.waiting.remove(&start.name);
            self.retries.not_before.remove(&start.name);
        }
        for failure in outcome.failures {
            let key = failure.container.clone().unwrap_or_default();
            self.retries.not_before.insert(key, from_now(failure.retry));
            if let Some(container) = failure.container {
                self.retries.waiting.insert(container, (failure.reason, failure.message));
            }
        }
        if let Some(rejection) = outcome.rejection {
            self.reject(rejection);
        }
    }

    /// Starts termination, which is final; `reason` if the node ends the pod.
    pub(super) fn terminate(&mut self, grace: i64, reason: Option<EndReason>) {
        if self.stage.is_ending() {
            return;
        }
        tracing::info!(
            pod = spec::name(self.pod()),
            namespace = spec::namespace(self.pod()),
            uid = self.uid(),
            grace,
            "pod ends"
        );
        self.trace.terminates(self.desired.is_deleting(), reason.as_ref());
        self.tasks.cancel.cancel();
        let deadline = from_now(Duration::from_secs(u64::try_from(grace).unwrap_or(0)));
        self.stage = Stage::Ending(Termination { reason, step: Step::Stopping(deadline) });
    }
}

#[cfg(test)]
pub(super) mod trap {
    use super::*;

    /// Annotates pods that a worker of a test cannot handle.
    pub(in crate::lifecycle::worker) const ANNOTATION: &str = "test/panics";

    /// Stands for a bug in the worker.
    pub(super) fn panic_if_marked(pod: &Pod) {
        assert!(spec::annotation(pod, ANNOTATION).is_none(), "the worker cannot handle the pod");
    }
}
