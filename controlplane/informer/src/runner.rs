//! The reconcile loop of a controller: take a key, reconcile, requeue it when asked to or after a failure.

use super::informer::Name;
use super::queue::Queue;
use super::resource::Resource;
use super::time;
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_cli::supervise::{Panicked, Subject, Supervisor};
use coracle_proto::status::ApiError;
use coracle_trace::{Cause, Moment, ReconcileSpan, caused_by, within};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A controller that asks for a time that has passed, again and again, is not to take a whole core.
const SHORTEST: Duration = Duration::from_millis(10);

/// Why a reconcile failed; it is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object does not have the form of its kind.
    #[error("unreadable object")]
    Unreadable(#[from] serde_json::Error),
    /// An error of the controller itself.
    #[error(transparent)]
    Controller(Box<dyn std::error::Error + Send + Sync>),
}

impl Failure {
    /// Wraps an error of the controller.
    pub fn of(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Controller(Box::new(error))
    }

    /// Whether the object was changed or deleted in the meantime; such failures are logged at debug level.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict() || error.is_not_found())
    }
}

/// Whether to reconcile a key again although nothing changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Requeue {
    /// Never.
    #[default]
    No,
    /// At this time.
    At(Timestamp),
    /// At once: there is more to do.
    Now,
}

impl From<Option<Timestamp>> for Requeue {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::No, Self::At)
    }
}

/// A controller.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// Name in logs, metrics and traces.
    fn name(&self) -> &'static str;

    /// Brings one object closer to its desired state. Never runs twice at the same time for the same name. May be called when
    /// there is nothing to do.
    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure>;

    /// Whether what a timer begins has no other cause, as with a node that fell silent or a schedule. The turns of other
    /// controllers at [`Requeue::At`] are recorded as consequences of the change that set the timer.
    fn acts_on_time(&self) -> bool {
        false
    }
}

/// A controller and its workers.
pub struct Runner {
    /// The controller.
    pub controller: Arc<dyn Controller>,
    /// Names to reconcile.
    pub queue: Arc<Queue<Name>>,
    /// The kind of the names, if known.
    pub primary: Option<Resource>,
    /// Counts panics and quarantines objects.
    pub supervisor: Supervisor,
    /// What turns are recorded with.
    pub spans: coracle_trace::Recorder,
}

impl Runner {
    /// Starts workers.
    pub fn start(self, workers: usize, tasks: &mut JoinSet<()>) {
        let runner = Arc::new(self);
        for _ in 0..workers {
            let (runner, task) = (runner.clone(), runner.controller.name());
            tasks.spawn(runner.supervisor.clone().keep(task, move || work(runner.clone())));
        }
    }

    fn subject(&self, name: &Name) -> Subject {
        let resource = self.primary.as_ref().map(|primary| primary.kind.plural.as_str());
        Subject::new(resource.unwrap_or("objects"), &name.namespace, &name.name)
    }

    /// Begins the span of a turn that waited in the queue since then.
    fn begin(&self, name: &Name, cause: Cause, queued: Instant) -> ReconcileSpan {
        let key = if self.spans.is_on() { name.to_string() } else { String::new() };
        let queued = self.spans.clock().map_or(Moment::MAX, |clock| clock.of(queued));
        self.spans.reconcile(self.controller.name(), &key, cause, queued)
    }

    /// Queues an object again as a turn asked for it; the next turn has the same cause. `begun` is when the turn began, by both
    /// clocks: a time that the turn asked for counts from there, also if the wall clock was set during the turn.
    fn requeue(&self, name: Name, again: Requeue, cause: Cause, begun: (Timestamp, Instant)) {
        match again {
            Requeue::No => {}
            Requeue::Now => caused_by(cause, || self.queue.add(name)),
            Requeue::At(at) => {
                let cause = if self.controller.acts_on_time() { Cause::NONE } else { cause };
                let delay = time::left(at, begun.0, begun.1.elapsed()).max(SHORTEST);
                caused_by(cause, || self.queue.add_after(name, delay));
            }
        }
    }

    /// Requeues an object whose reconcile panicked after a long delay, and records an Event about it.
    fn report_panic(&self, name: &Name, panicked: &Panicked) {
        let delay = self.queue.panicked(name);
        let object = self.primary.as_ref().and_then(|primary| Some((primary, primary.get(name)?)));
        if let Some((primary, object)) = object {
            let (controller, seconds) = (self.controller.name(), delay.as_secs());
            let text =
                format!("{controller} panicked and tries again in {seconds} s or after a change: {panicked}");
            primary.warn(&object, "ReconcilePanicked", text);
        }
    }
}

async fn work(runner: Arc<Runner>) {
    let Runner { controller, queue, supervisor, .. } = &*runner;
    loop {
        let (name, cause, queued) = queue.take_caused().await;
        let mut span = runner.begin(&name, cause, queued);
        let begun = (Timestamp::now(), Instant::now());
        let turn = within(span.scope(), controller.reconcile(&name, begun.0));
        let outcome = supervisor.isolate(controller.name(), || runner.subject(&name), turn).await;
        if !matches!(outcome, Ok(Ok(_))) {
            span.failed();
        }
        drop(span);
        match outcome {
            Err(panicked) => runner.report_panic(&name, &panicked),
            Ok(Ok(again)) => {
                queue.done(&name);
                runner.requeue(name, again, cause, begun);
            }
            Ok(Err(error)) => {
                let delay = queue.failed(&name);
                let controller = controller.name();
                if error.is_conflict() {
                    tracing::debug!(controller, %name, error = %causes::chain(&error), "write conflict, will retry");
                } else {
                    tracing::warn!(controller, %name, error = %causes::chain(&error), ?delay, "reconcile failed, will retry");
                }
            }
        }
        // Turns that wait for nothing would keep requests from being served.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Recorder, Writer};
    use coracle_testing::Cluster;
    use coracle_trace::{Flags, Rank, Record, SpanId, Stage, Uid};
    use parking_lot::Mutex;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A controller with a bug: one name is too much for it.
    struct Odd(Arc<Mutex<BTreeMap<String, u32>>>);

    #[async_trait]
    impl Controller for Odd {
        fn name(&self) -> &'static str {
            "odd-controller"
        }

        async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
            *self.0.lock().entry(name.name.clone()).or_default() += 1;
            tokio::task::yield_now().await;
            assert_ne!(name.name, "bad", "cannot handle it");
            Ok(Requeue::No)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_that_makes_a_controller_panic_does_not_hold_up_others() {
        let cluster = Cluster::bare().await;
        for name in ["bad", "good"] {
            cluster.create("", "configmaps", "default", json!({"metadata": {"name": name}})).await;
        }
        let client = &cluster.client;
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let (recorder, record) = Recorder::new("odd-controller", writer);
        let (kind, supervisor) = (client.kind("", "configmaps"), Supervisor::default());
        let primary = Resource::new(client, &recorder, kind.clone(), client.cache(&kind));
        let (queue, turns) = (Arc::new(Queue::new()), Arc::new(Mutex::new(BTreeMap::new())));
        let controller: Arc<dyn Controller> = Arc::new(Odd(turns.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(record());
        Runner {
            controller,
            queue: queue.clone(),
            primary: Some(primary),
            supervisor: supervisor.clone(),
            spans: client.recorder(),
        }
        .start(1, &mut tasks);
        queue.add(Name::new("default", "bad"));
        cluster.until("a panic", |_| turns.lock().contains_key("bad")).await;
        for round in 1..=3 {
            queue.add(Name::new("default", "good"));
            cluster.until("the worker goes on", |_| turns.lock().get("good") == Some(&round)).await;
        }
        assert_eq!(turns.lock()["bad"], 1, "it rests");
        let aside = supervisor.quarantined();
        assert_eq!((aside.len(), aside[0].subject.to_string()), (1, "configmaps default/bad".to_owned()));
        assert_eq!(aside[0].task, "odd-controller");
        assert_eq!(supervisor.panics(), [("odd-controller".to_owned(), 1)]);
        assert!(supervisor.dead().is_empty());
        let told = |c: &Cluster| {
            let events = c.list("events", "default");
            events.iter().any(|e| e["reason"] == "ReconcilePanicked" && e["involvedObject"]["name"] == "bad")
        };
        cluster.until("an event", told).await;
    }

    /// Sets a timer in its first turn and fails in the others, so that they are recorded.
    struct Alarm {
        acts_on_time: bool,
        turns: AtomicU32,
    }

    #[async_trait]
    impl Controller for Alarm {
        fn name(&self) -> &'static str {
            "alarm-controller"
        }

        fn acts_on_time(&self) -> bool {
            self.acts_on_time
        }

        async fn reconcile(&self, _: &Name, now: Timestamp) -> Result<Requeue, Failure> {
            match self.turns.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(Requeue::At(now + jiff::SignedDuration::from_millis(20))),
                _ => Err(Failure::of(std::fmt::Error)),
            }
        }
    }

    /// The second and the third turn of an alarm that was set because of a change.
    async fn turns_after(cause: Cause, acts_on_time: bool) -> [Record; 2] {
        let (queue, spans) = (Arc::new(Queue::new()), coracle_trace::Recorder::for_tests());
        let controller: Arc<dyn Controller> = Arc::new(Alarm { acts_on_time, turns: AtomicU32::new(0) });
        let mut tasks = JoinSet::new();
        let supervisor = Supervisor::default();
        Runner { controller, queue: queue.clone(), primary: None, supervisor, spans }.start(1, &mut tasks);
        caused_by(cause, || queue.add(Name::new("default", "web")));
        let mut turns = Vec::new();
        while turns.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let read = spans.read(&mut |record, _, text| {
                assert_eq!(text, "alarm-controller default/web");
                if record.stage == Stage::Reconcile && record.flags.contains(Flags::FAILED) {
                    turns.push(*record);
                }
            });
            spans.release(read);
        }
        [turns[0], turns[1]]
    }

    #[tokio::test]
    async fn what_a_timer_begins_is_a_consequence_or_a_root() {
        let cause = Cause { uid: Uid(7), revision: 3, rank: Rank::Spec, since: Moment(1) };
        let [timer, retry] = turns_after(cause, false).await;
        assert_eq!((timer.parent, timer.revision), (cause.span(), 3));
        assert!(timer.flags.contains(Flags::TIMER | Flags::FAILED), "{timer:?}");
        assert_eq!(retry.parent, cause.span());
        assert!(retry.flags.contains(Flags::RETRIED), "{retry:?}");
        let [timer, retry] = turns_after(cause, true).await;
        assert_eq!((timer.parent, retry.parent), (SpanId::NONE, SpanId::NONE));
        assert!(timer.flags.contains(Flags::TIMER), "{timer:?}");
    }
}
