//! The loop around a controller: take a key, reconcile, come back when it says or when it failed.

use super::informer::Name;
use super::queue::Queue;
use super::resource::Resource;
use super::time;
use async_trait::async_trait;
use coracle_cli::supervise::{Panicked, Subject, Supervisor};
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Why a turn failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object is not what its kind says.
    #[error("unreadable object")]
    Unreadable(#[from] serde_json::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Whether someone else was faster: nothing to worry about.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict() || error.is_not_found())
    }
}

/// When to come back to a key although nothing changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Again {
    /// Never.
    #[default]
    No,
    /// At this time.
    At(Timestamp),
    /// Right away: there is more to do.
    Now,
}

impl From<Option<Timestamp>> for Again {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::No, Self::At)
    }
}

/// A control loop's body.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Brings one object closer to what is wanted. Never called for the same name twice at a time; may be called any
    /// time, also when nothing is to be done.
    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Again, Failure>;
}

/// A controller with what its workers need.
pub struct Runner {
    /// The body.
    pub controller: Arc<dyn Controller>,
    /// The names it is to look at.
    pub queue: Arc<Queue<Name>>,
    /// The kind that the names are of, where known.
    pub primary: Option<Resource>,
    /// Who counts panics and knows what is in quarantine.
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

    /// A turn panicked: the object waits for long and says so, the others go on.
    fn put_aside(&self, name: &Name, panicked: &Panicked) {
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
        match supervisor.guard(controller.name(), || runner.subject(&name), turn).await {
            Err(panicked) => runner.put_aside(&name, &panicked),
            Ok(Ok(again)) => {
                queue.done(&name);
                match again {
                    Again::No => {}
                    Again::Now => queue.add(name),
                    Again::At(at) => queue.add_after(name, time::until(at, Timestamp::now())),
                }
            }
            Ok(Err(error)) => {
                let delay = queue.failed(&name);
                let controller = controller.name();
                if error.is_conflict() {
                    tracing::debug!(controller, %name, %error, "someone was faster, trying again");
                } else {
                    tracing::warn!(controller, %name, error = &error as &dyn std::error::Error, ?delay, "trying again");
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

        async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
            *self.0.lock().entry(name.name.clone()).or_default() += 1;
            tokio::task::yield_now().await;
            assert_ne!(name.name, "bad", "cannot handle it");
            Ok(Again::No)
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
