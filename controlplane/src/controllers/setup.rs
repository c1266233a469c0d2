//! What controllers are built from: identities, informers, shared indexes and tasks.

use super::index::Pods;
use super::informer::{Feed, Informers, Name};
use super::queue::Queue;
use super::recorder::{Recorder, Writer};
use super::resource::Resource;
use super::runner::{self, Controller};
use crate::client::Client;
use crate::metrics::work::{Counted, Work};
use crate::object::Object;
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
}

impl<'a> Setup<'a> {
    /// An empty setup; `work` shows what the queues count.
    pub fn new(factory: &'a ClientFactory, work: Arc<Work>) -> Self {
        let (informers, tasks) = (Informers::default(), JoinSet::new());
        Self { factory, informers, tasks, pods: None, recorders: HashMap::new(), work }
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
        self.tasks.spawn(task);
        self.recorders.insert(name, (client.clone(), recorder.clone()));
        (client, recorder)
    }

    /// The index of all pods, shared.
    pub fn pods(&mut self) -> Arc<Pods> {
        if let Some(pods) = &self.pods {
            return pods.clone();
        }
        let client = (self.factory)("pod-index");
        let pods = Arc::new(Pods::of_cache(client.cache(&client.kind("", "pods"))));
        self.tasks.spawn(pods.clone().keep_up());
        self.pods = Some(pods.clone());
        pods
    }

    /// The queue of a controller, fed by its primary kind; more feeds can be added.
    pub fn feed(&mut self, primary: &Resource) -> Feed<'_> {
        Feed::new(&mut self.informers, &primary.kind, primary.cache.clone())
    }

    /// Like [`Setup::feed`], of those objects only that may mean work.
    pub fn feed_only(
        &mut self,
        primary: &Resource,
        wanted: impl Fn(&Object) -> bool + Send + Sync + 'static,
    ) -> Feed<'_> {
        Feed::only(&mut self.informers, &primary.kind, primary.cache.clone(), wanted)
    }

    /// The informers, for listeners that are no queue of names.
    pub fn informers(&mut self) -> &mut Informers {
        &mut self.informers
    }

    /// Starts workers for a controller once all is set up.
    pub fn run(&mut self, controller: impl Controller, queue: &Arc<Queue<Name>>, workers: usize) {
        self.counted(controller.name(), queue.clone());
        runner::start(Arc::new(controller), queue, workers, &mut self.tasks);
    }

    /// Shows what a queue counts.
    pub fn counted(&self, name: &'static str, queue: Arc<dyn Counted>) {
        self.work.put(name, queue);
    }

    /// Runs a task beside the controllers.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Starts the informers; everything ends when the set is dropped.
    pub fn start(mut self) -> JoinSet<()> {
        self.informers.start(&mut self.tasks);
        self.tasks
    }
}
