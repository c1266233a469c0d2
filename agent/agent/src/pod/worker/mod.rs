//! One task per pod: Syncing → Terminating → Terminated, never backwards.
//!
//! The worker only decides. Slow operations (volumes, images, starts, stops) run in their own tasks and report by
//! message, so that a deletion is never delayed by a pull or a hook.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff::Backoffs;
use super::execute::{self, Outcome};
use super::observed::Observed;
use super::table::{ContainerView, Message, PodView};
use super::{observe, spec};
use crate::context::Context;
use crate::events::Kind;
use crate::status::generate::Resize;
use crate::volume::prepare::Prepared;
use coracle_cli::supervise::Subject;

// Reconciles a running pod with its spec.
mod sync;
// In-place resize.
mod resize;
// Termination and cleanup.
mod terminate;
// Reports status and sets probes.
mod report;
// Restarts the worker after a panic.
mod restart;

const RETRY: Duration = Duration::from_secs(1);
/// Interval of full resyncs, in case an event was lost.
const RESYNC: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Running: reconciled with its spec.
    Syncing,
    /// Being stopped, with a deadline.
    Terminating(Instant),
    /// Nothing is running.
    Terminated,
}

/// The worker of one pod.
pub struct Worker {
    context: Arc<Context>,
    pod: Arc<Pod>,
    own: UnboundedSender<Message>,
    stage: Stage,
    /// Deleted by its source.
    gone: bool,
    admitted: bool,
    observed: Observed,
    /// The observed state is stale.
    stale: bool,
    /// A job is running; it starts these containers.
    busy: bool,
    starting: BTreeSet<String>,
    cancel: CancellationToken,
    stopping: HashMap<String, tokio::task::AbortHandle>,
    /// Tasks of this worker: another worker of the pod must not start before they have ended.
    jobs: TaskTracker,
    replaced: BTreeSet<String>,
    /// Resources running containers have, by id.
    applied: HashMap<String, resize::Applied>,
    /// Why a resize is pending.
    resizing: Option<Resize>,
    backoffs: Backoffs,
    /// No new attempt before this time: by container, `""` for the sandbox.
    not_before: HashMap<String, Instant>,
    waiting: BTreeMap<String, (String, String)>,
    /// Instances whose back-off was recorded as an event.
    told_backoff: BTreeSet<String>,
    failure: Option<(String, String)>,
    prepared: Option<Arc<Prepared>>,
    /// The volumes failed at least once: the sandbox waits for them.
    volumes_failed: bool,
    /// A refresh of volumes is running; whether another one is needed afterwards.
    refreshing: bool,
    refresh_again: bool,
    status: PodStatus,
    /// The status of the API object may differ from ours.
    unsettled: bool,
    began: Instant,
    wake_at: Option<Instant>,
    released: bool,
    deletion_asked: bool,
}

/// Starts the worker of a pod; `false` if there is one already. `gone` is for orphaned pods, which are only cleaned up.
pub fn spawn(context: &Arc<Context>, pod: Arc<Pod>, gone: bool) -> bool {
    let (own, inbox) = unbounded_channel();
    if !context.pods.insert(&pod, own.clone()) {
        return false;
    }
    if !gone {
        tracing::info!(
            pod = spec::name(&pod),
            namespace = spec::namespace(&pod),
            uid = spec::uid(&pod),
            "pod arrives"
        );
    }
    tokio::spawn(restart::run_worker(context.clone(), pod, gone, own, inbox));
    true
}

fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Upper limit of waits: `Instant` cannot represent every value that users may write.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A time from now.
fn from_now(after: Duration) -> Instant {
    Instant::now() + after.min(MAX_WAIT)
}

/// The pod as the subject of a quarantine.
fn subject(pod: &Pod) -> Subject {
    Subject::new("pods", spec::namespace(pod), spec::name(pod))
}

impl Worker {
    fn new(context: &Arc<Context>, pod: Arc<Pod>, gone: bool, own: UnboundedSender<Message>) -> Self {
        let status = context.reporter.status(spec::uid(&pod)).or_else(|| pod.status.clone());
        Worker {
            context: context.clone(),
            status: status.unwrap_or_default(),
            pod,
            own,
            stage: Stage::Syncing,
            gone,
            admitted: false,
            observed: Observed::default(),
            stale: true,
            busy: false,
            starting: BTreeSet::new(),
            cancel: CancellationToken::new(),
            stopping: HashMap::new(),
            jobs: TaskTracker::new(),
            replaced: BTreeSet::new(),
            applied: HashMap::new(),
            resizing: None,
            backoffs: Backoffs::default(),
            not_before: HashMap::new(),
            waiting: BTreeMap::new(),
            told_backoff: BTreeSet::new(),
            failure: None,
            prepared: None,
            volumes_failed: false,
            refreshing: false,
            refresh_again: false,
            unsettled: true,
            began: Instant::now(),
            wake_at: None,
            released: false,
            deletion_asked: false,
        }
    }

    fn uid(&self) -> &str {
        spec::uid(&self.pod)
    }

    async fn run(&mut self, inbox: &mut UnboundedReceiver<Message>) {
        loop {
            while let Ok(message) = inbox.try_recv() {
                if self.take(message) {
                    return;
                }
            }
            self.wake_at = None;
            self.pass().await;
            self.context.supervisor.release(restart::TASK, || subject(&self.pod));
            let wake = self.wake_at.unwrap_or_else(|| Instant::now() + RESYNC);
            let message = tokio::select! {
                message = inbox.recv() => message,
                () = tokio::time::sleep_until(wake.into()) => {
                    // The resync reads everything again.
                    self.stale |= self.wake_at.is_none();
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

    fn wake_in(&mut self, after: Duration) {
        let at = from_now(after);
        self.wake_at = Some(self.wake_at.map_or(at, |old| old.min(at)));
    }

    /// One reconciliation.
    async fn pass(&mut self) {
        if self.stale && !self.observe().await {
            return;
        }
        loop {
            let before = self.stage;
            match self.stage {
                Stage::Syncing => self.sync().await,
                Stage::Terminating(deadline) => self.stop_all(deadline).await,
                Stage::Terminated => self.clean_up().await,
            }
            if self.stage == before {
                return;
            }
        }
    }

    /// Reads the state from the runtime; `false` on error, to be retried.
    async fn observe(&mut self) -> bool {
        #[cfg(test)]
        restart::tests::panic_if_marked(&self.pod);
        let seen =
            observe::observe(&*self.context.runtime, &self.context.config, self.uid(), &self.observed).await;
        match seen {
            Ok(observed) => {
                self.observed = observed;
                self.stale = false;
                self.publish_view();
                true
            }
            Err(error) => {
                tracing::warn!(uid = self.uid(), %error, "runtime status not read, will retry");
                self.wake_in(RETRY);
                false
            }
        }
    }

    fn publish_view(&self) {
        let config = &self.context.config;
        let logs = config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), self.uid());
        let containers = self.observed.instances.iter().map(|instance| ContainerView {
            name: instance.name.clone(),
            id: instance.id.clone(),
            attempt: instance.attempt,
            state: instance.state,
            log_path: match instance.log_path.as_str() {
                "" => logs.join(super::container_config::log_path(&instance.name, instance.attempt)),
                path => path.into(),
            },
        });
        let sandbox = self.observed.sandboxes.first();
        let view = PodView {
            sandbox: sandbox.map(|sandbox| sandbox.id.clone()),
            ips: self.ips(),
            containers: containers.collect(),
        };
        self.context.pods.set_view(self.uid(), view);
    }

    fn ips(&self) -> Vec<String> {
        if spec::spec(&self.pod).host_network == Some(true) {
            return self.context.config.ips.clone();
        }
        self.observed.ready_sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Handles a message; `true` if it was the last.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod) => self.updated(pod),
            Message::Gone(pod) => {
                if let Some(pod) = pod {
                    self.pod = pod;
                }
                self.gone = true;
                self.shorten();
            }
            Message::Observe => self.stale = true,
            Message::Verdicts => {}
            Message::Objects => self.refresh_volumes(),
            Message::Prepared(prepared) => self.refreshed(prepared),
            Message::Done(outcome) => self.done(*outcome),
            Message::Stopped(id) => {
                self.stopping.remove(&id);
                self.stale = true;
            }
            Message::Evict { reason, message, grace } => {
                if self.stage == Stage::Syncing {
                    self.failure = Some((reason, message));
                    self.terminate(grace);
                }
            }
            Message::Report => self.unsettled = true,
            Message::Deleted => {
                self.context.reporter.forget(self.uid());
                self.context.pods.finish(self.uid(), self.gone);
                return true;
            }
        }
        false
    }

    fn updated(&mut self, pod: Arc<Pod>) {
        let told = |pod: &Pod| {
            let containers = pod.spec.as_ref().map(|spec| spec.containers.clone());
            (pod.metadata.labels.clone(), pod.metadata.annotations.clone(), containers)
        };
        let changed = told(&self.pod) != told(&pod);
        self.pod = pod;
        self.unsettled = true;
        if changed {
            self.refresh_volumes();
        }
        self.shorten();
    }

    /// A second deletion may shorten the grace period.
    fn shorten(&mut self) {
        let Stage::Terminating(deadline) = self.stage else { return };
        let sooner = from_now(self.deletion_grace());
        if self.is_deleting() && sooner + Duration::from_millis(500) < deadline {
            self.stage = Stage::Terminating(sooner);
            for (_, task) in self.stopping.drain() {
                task.abort();
            }
            self.stale = true;
        }
    }

    /// Grace period of a deletion, at least one second.
    fn deletion_grace(&self) -> Duration {
        Duration::from_secs(u64::try_from(spec::grace(&self.pod)).unwrap_or(0).max(1))
    }

    fn done(&mut self, outcome: Outcome) {
        self.busy = false;
        self.starting.clear();
        self.stale = true;
        self.volumes_failed |= outcome.volumes_failed;
        if outcome.prepared.is_some() {
            self.prepared = outcome.prepared;
        }
        for start in outcome.started {
            self.waiting.remove(&start.name);
            self.not_before.remove(&start.name);
        }
        for failure in outcome.failures {
            let key = failure.container.clone().unwrap_or_default();
            self.not_before.insert(key, from_now(failure.retry));
            if let Some(container) = failure.container {
                self.waiting.insert(container, (failure.reason, failure.message));
            }
        }
    }

    /// A ConfigMap or Secret changed: retries failed containers and refreshes volumes.
    pub(super) fn refresh_volumes(&mut self) {
        self.not_before.clear();
        if self.prepared.is_none() || self.stage != Stage::Syncing {
            return;
        }
        // Concurrent refreshes would delete each other's files.
        if self.refreshing {
            self.refresh_again = true;
            return;
        }
        self.refreshing = true;
        let (context, pod, own) = (self.context.clone(), self.pod.clone(), self.own.clone());
        self.jobs.spawn(async move {
            let prepared = match restart::catch_panic(&context, &pod, execute::prepare(&context, &pod)).await
            {
                Ok(Ok(prepared)) => Some(Arc::new(prepared)),
                Ok(Err(error)) => {
                    context.events.pod(&pod, Kind::Warning, "FailedMount", error.to_string());
                    None
                }
                Err(_) => None,
            };
            let _ = own.send(Message::Prepared(prepared));
        });
    }

    fn refreshed(&mut self, prepared: Option<Arc<Prepared>>) {
        self.refreshing = false;
        match (&mut self.prepared, prepared) {
            (Some(old), Some(prepared)) => *old = prepared,
            // Delays the next renewal after a failure.
            (Some(old), None) => {
                let later = now() / 1_000_000_000 + 60;
                let old = Arc::make_mut(old);
                old.renew_at = old.renew_at.map(|at| at.max(later));
            }
            (None, _) => {}
        }
        if std::mem::take(&mut self.refresh_again) {
            self.refresh_volumes();
        }
    }
}
