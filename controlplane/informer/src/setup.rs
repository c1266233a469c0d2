//! Builds and starts controllers: clients, informers, shared indexes and tasks.

use super::identity::{Account, Identity};
use super::index::Pods;
use super::informer::{EnqueueHandlers, Informers, Name};
use super::queue::{Item, Queue};
use super::recorder::{Recorder, Writer};
use super::resource::Resource;
use super::runner::{Controller, Runner};
use crate::queue_metrics::QueueMetrics;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_kinds::object::Object;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Creates the client of a controller.
pub type ClientFactory = dyn Fn(Identity) -> Client + Send + Sync;

/// Reads caches only.
const READER: Identity = Identity::without_account(Account::Server, "informers");

/// Everything a controller's constructor needs.
pub struct Setup<'a> {
    factory: &'a ClientFactory,
    informers: Informers,
    tasks: JoinSet<()>,
    pods: Option<Arc<Pods>>,
    identities: HashMap<Identity, (Client, Recorder)>,
    queue_metrics: Arc<QueueMetrics>,
    supervisor: Supervisor,
    ignored_delays: Option<Duration>,
    /// Queues, and the kinds that their names are of.
    primaries: Vec<(Arc<Queue<Name>>, Resource)>,
}

impl<'a> Setup<'a> {
    /// An empty setup; `queue_metrics` collects the metrics of the queues, `supervisor` keeps the tasks running.
    pub fn new(factory: &'a ClientFactory, queue_metrics: Arc<QueueMetrics>, supervisor: Supervisor) -> Self {
        Self {
            factory,
            informers: Informers::recording(factory(READER).recorder()),
            tasks: JoinSet::new(),
            pods: None,
            identities: HashMap::new(),
            queue_metrics,
            supervisor,
            ignored_delays: None,
            primaries: Vec::new(),
        }
    }

    /// Makes all queues ignore delays of at least this length: [`Queue::ignore_delays_from`].
    #[must_use]
    pub fn ignoring_delays_from(self, limit: Option<Duration>) -> Self {
        Self { ignored_delays: limit, ..self }
    }

    /// A kind for a controller. A name stands for the controller's service account in `kube-system`, whose role is in
    /// `controlplane/kinds/src/registry/bootstrap/controllers.txt`, and for the source of its Events; an [`Identity`] can have
    /// different names for them.
    pub fn resource(&mut self, identity: impl Into<Identity>, group: &str, plural: &str) -> Resource {
        let (client, recorder) = self.identity(identity.into());
        let kind = client.kind(group, plural);
        let cache = client.cache(&kind);
        Resource::new(&client, &recorder, kind, cache)
    }

    /// The client of a controller.
    pub fn client(&mut self, identity: impl Into<Identity>) -> Client {
        self.identity(identity.into()).0
    }

    fn identity(&mut self, identity: Identity) -> (Client, Recorder) {
        if let Some((client, recorder)) = self.identities.get(&identity) {
            return (client.clone(), recorder.clone());
        }
        let (client, name) = ((self.factory)(identity), identity.events);
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let (recorder, task) = Recorder::new(name, writer);
        self.tasks.spawn(self.supervisor.clone().finish(format!("events of {name}"), task));
        self.identities.insert(identity, (client.clone(), recorder.clone()));
        (client, recorder)
    }

    /// The index of all pods, shared.
    pub fn pods(&mut self) -> Arc<Pods> {
        if let Some(pods) = &self.pods {
            return pods.clone();
        }
        let client = (self.factory)(READER);
        let cache = client.cache(&client.kind("", "pods"));
        let pods = Arc::new(Pods::of_cache(cache, self.supervisor.clone()));
        let index = pods.clone();
        self.tasks.spawn(self.supervisor.clone().keep("pod-index", move || index.clone().keep_up()));
        self.pods = Some(pods.clone());
        pods
    }

    /// The work queue of a controller, with handlers for its primary kind; more handlers can be added.
    pub fn enqueue_on_change(&mut self, primary: &Resource) -> EnqueueHandlers<'_> {
        let handlers = EnqueueHandlers::new(&mut self.informers, &primary.kind, primary.cache.clone());
        self.primaries.push((handlers.queue.clone(), primary.clone()));
        handlers
    }

    /// Like [`Setup::enqueue_on_change`], only for objects for which `wanted` is true.
    pub fn enqueue_matching(
        &mut self,
        primary: &Resource,
        wanted: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> EnqueueHandlers<'_> {
        let handlers =
            EnqueueHandlers::matching(&mut self.informers, &primary.kind, primary.cache.clone(), wanted);
        self.primaries.push((handlers.queue.clone(), primary.clone()));
        handlers
    }

    /// The informers, for handlers without a work queue.
    pub fn informers(&mut self) -> &mut Informers {
        &mut self.informers
    }

    /// Starts workers for a controller once all is set up.
    pub fn run(&mut self, controller: impl Controller, queue: &Arc<Queue<Name>>, workers: usize) {
        self.add_queue(controller.name(), queue);
        let primary = self.primaries.iter().find(|(of, _)| Arc::ptr_eq(of, queue));
        let runner = Runner {
            controller: Arc::new(controller),
            queue: queue.clone(),
            primary: primary.map(|(_, primary)| primary.clone()),
            supervisor: self.supervisor.clone(),
            spans: self.informers.spans,
        };
        runner.start(workers, &mut self.tasks);
    }

    /// Sets the kind of the names in a queue that was created by the controller.
    pub fn set_primary(&mut self, queue: &Arc<Queue<Name>>, primary: &Resource) {
        self.primaries.push((queue.clone(), primary.clone()));
    }

    /// The event recorder of a controller.
    pub fn recorder(&mut self, identity: impl Into<Identity>) -> Recorder {
        self.identity(identity.into()).1
    }

    /// The supervisor: counts panics and quarantines objects.
    pub fn supervisor(&self) -> Supervisor {
        self.supervisor.clone()
    }

    /// Adds a queue to the metrics; for controllers that are not started by [`Setup::run`].
    pub fn add_queue<K: Item>(&self, name: &'static str, queue: &Arc<Queue<K>>) {
        if let Some(limit) = self.ignored_delays {
            queue.ignore_delays_from(limit);
        }
        self.queue_metrics.add(name, queue.clone());
    }

    /// Runs a task that is not meant to end; it is created again after a failure.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: &'static str,
        make: impl FnMut() -> F + Send + 'static,
    ) {
        self.tasks.spawn(self.supervisor.clone().keep(task, make));
    }

    /// Runs a task until it returns; it is created again after a panic.
    pub fn finish<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: &'static str,
        make: impl FnMut() -> F + Send + 'static,
    ) {
        self.tasks.spawn(self.supervisor.clone().finish(task, make));
    }

    /// Starts the informers; everything ends when the set is dropped.
    pub fn start(mut self) -> JoinSet<()> {
        self.informers.start(&self.supervisor, &mut self.tasks);
        self.tasks
    }
}
