//! The reconcile loop of a controller: take a key, reconcile, requeue it when asked to or after a failure.

use super::informer::Name;
use super::queue::Queue;
use super::resource::Resource;
use super::time;
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_cli::supervise::{Panicked, Subject, Supervisor};
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use std::sync::Arc;
use tokio::task::JoinSet;

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
    /// Name in logs, metrics and Events.
    fn name(&self) -> &'static str;

    /// Brings one object closer to its desired state. Never runs twice at the same time for the same name. May be called when
    /// there is nothing to do.
    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure>;
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
        let name = queue.take().await;
        let turn = controller.reconcile(&name, Timestamp::now());
        match supervisor.isolate(controller.name(), || runner.subject(&name), turn).await {
            Err(panicked) => runner.report_panic(&name, &panicked),
            Ok(Ok(again)) => {
                queue.done(&name);
                match again {
                    Requeue::No => {}
                    Requeue::Now => queue.add(name),
                    Requeue::At(at) => queue.add_after(name, time::until(at, Timestamp::now())),
                }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Recorder, Writer};
    use coracle_testing::Cluster;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::collections::BTreeMap;

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
        Runner { controller, queue: queue.clone(), primary: Some(primary), supervisor: supervisor.clone() }
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
}
