//! What controllers are built from: identities, informers, shared indexes and tasks.

use super::index::Pods;
use super::informer::{Feed, Informers, Name};
use super::queue::Queue;
use super::recorder::{Recorder, Writer};
use super::resource::Resource;
use super::runner::{Controller, Runner};
use crate::work::{Counted, Work};
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_kinds::object::Object;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Gives out the client of an identity, by the controller's name.
pub type ClientFactory = dyn Fn(&str) -> Client + Send + Sync;

/// Everything a controller's constructor needs.
pub struct Setup<'a> {
    factory: &'a ClientFactory,
    informers: Informers,
    tasks: JoinSet<()>,
    pods: Option<Arc<Pods>>,
    recorders: HashMap<&'static str, (Client, Recorder)>,
    work: Arc<Work>,
    supervisor: Supervisor,
    /// Queues, and the kinds that their names are of.
    primaries: Vec<(Arc<Queue<Name>>, Resource)>,
}

impl<'a> Setup<'a> {
    /// An empty setup; `work` shows what the queues count, `supervisor` keeps the tasks running.
    pub fn new(factory: &'a ClientFactory, work: Arc<Work>, supervisor: Supervisor) -> Self {
        Self {
            factory,
            informers: Informers::default(),
            tasks: JoinSet::new(),
            pods: None,
            recorders: HashMap::new(),
            work,
            supervisor,
            primaries: Vec::new(),
        }
    }

    /// A kind for a controller; `name` is also its service account: `<name>-controller` unless it is complete.
    pub fn resource(&mut self, name: &'static str, group: &str, plural: &str) -> Resource {
        let (client, recorder) = self.identity(name);
        let kind = client.kind(group, plural);
        let cache = client.cache(&kind);
        Resource::new(&client, &recorder, kind, cache)
    }

    /// The client of a controller.
    pub fn client(&mut self, name: &'static str) -> Client {
        self.identity(name).0
    }

    fn identity(&mut self, name: &'static str) -> (Client, Recorder) {
        if let Some((client, recorder)) = self.recorders.get(name) {
            return (client.clone(), recorder.clone());
        }
        let client = (self.factory)(name);
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let (recorder, task) = Recorder::new(name, writer);
        self.tasks.spawn(self.supervisor.clone().finish(format!("events of {name}"), task));
        self.recorders.insert(name, (client.clone(), recorder.clone()));
        (client, recorder)
    }

    /// The index of all pods, shared.
    pub fn pods(&mut self) -> Arc<Pods> {
        if let Some(pods) = &self.pods {
            return pods.clone();
        }
        let client = (self.factory)("pod-index");
        let cache = client.cache(&client.kind("", "pods"));
        let pods = Arc::new(Pods::of_cache(cache, self.supervisor.clone()));
        let index = pods.clone();
        self.tasks.spawn(self.supervisor.clone().keep("pod-index", move || index.clone().keep_up()));
        self.pods = Some(pods.clone());
        pods
    }

    /// The queue of a controller, fed by its primary kind; more feeds can be added.
    pub fn feed(&mut self, primary: &Resource) -> Feed<'_> {
        let feed = Feed::new(&mut self.informers, &primary.kind, primary.cache.clone());
        self.primaries.push((feed.queue.clone(), primary.clone()));
        feed
    }

    /// Like [`Setup::feed`], of those objects only that may mean work.
    pub fn feed_only(
        &mut self,
        primary: &Resource,
        wanted: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> Feed<'_> {
        let feed = Feed::only(&mut self.informers, &primary.kind, primary.cache.clone(), wanted);
        self.primaries.push((feed.queue.clone(), primary.clone()));
        feed
    }

    /// The informers, for listeners that are no queue of names.
    pub fn informers(&mut self) -> &mut Informers {
        &mut self.informers
    }

    /// Starts workers for a controller once all is set up.
    pub fn run(&mut self, controller: impl Controller, queue: &Arc<Queue<Name>>, workers: usize) {
        self.counted(controller.name(), queue.clone());
        let primary = self.primaries.iter().find(|(of, _)| Arc::ptr_eq(of, queue));
        let runner = Runner {
            controller: Arc::new(controller),
            queue: queue.clone(),
            primary: primary.map(|(_, primary)| primary.clone()),
            supervisor: self.supervisor.clone(),
        };
        runner.start(workers, &mut self.tasks);
    }

    /// Says of what kind the names in a queue are that was made by hand.
    pub fn names_are_of(&mut self, queue: &Arc<Queue<Name>>, primary: &Resource) {
        self.primaries.push((queue.clone(), primary.clone()));
    }

    /// Who says what there is to say about a controller's objects.
    pub fn recorder(&mut self, name: &'static str) -> Recorder {
        self.identity(name).1
    }

    /// Who counts panics and knows what is in quarantine.
    pub fn supervisor(&self) -> Supervisor {
        self.supervisor.clone()
    }

    /// Shows what a queue counts.
    pub fn counted(&self, name: &'static str, queue: Arc<dyn Counted>) {
        self.work.put(name, queue);
    }

    /// Runs a task without end beside the controllers; it is made anew after a failure.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: &'static str,
        make: impl FnMut() -> F + Send + 'static,
    ) {
        self.tasks.spawn(self.supervisor.clone().keep(task, make));
    }

    /// Runs a task beside the controllers until it is done; it is made anew after a panic.
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
