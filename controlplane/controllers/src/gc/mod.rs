//! The garbage collector: deletes objects whose last owner is gone, and implements foreground and orphan deletion. It also sees
//! objects whose initializers are pending: they can be owners, and are deleted as others are. What it would change in them is refused
//! until they are initialized, and tried again. It deletes those whose initializer has failed, too, should the server have stopped
//! before it did.

// Who owns whom.
pub mod graph;

use coracle_cli::causes;
use coracle_cli::supervise::{Panicked, Subject, Supervisor};
use coracle_client::Client;
use coracle_client::aggregated::AggregatedObjects;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_client::user::User;
use coracle_fields::meta::{ObjectMeta, PartialObjectMetadata};
use coracle_fields::{Edit, Schema as _};
use coracle_informer::all_kinds::{ObjectHandler, kinds};
use coracle_informer::events::{EventDraft, Severity};
use coracle_informer::identity::Identity;
use coracle_informer::informer::{Change, Name};
use coracle_informer::queue::Queue;
use coracle_informer::recorder::Recorder;
use coracle_informer::runner::Failure;
use coracle_kinds::object::{Object, Owner};
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_trace::{Cause, Moment, ReconcileSpan, within};
use graph::{Decision, FOREGROUND, Graph, Node, ORPHAN, OwnerState};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The collector's identity.
pub const NAME: &str = "generic-garbage-collector";
/// Its service account, and the source of its Events.
pub const IDENTITY: Identity = Identity::of(NAME).with_events("garbage-collector-controller");

/// Interval of the check for owners on aggregated API servers: there is no watch on them.
const AGGREGATED_RECHECK: Duration = Duration::from_secs(60);

/// The kind of an owner is not served, so that its state is unknown.
#[derive(Debug, thiserror::Error)]
#[error("no matches for kind \"{kind}\" in version \"{version}\"")]
struct NotServed {
    kind: String,
    version: String,
}

/// The collector: a graph fed with every change, and a queue of uids to look at.
pub struct Collector {
    client: Client,
    extensions: Option<Arc<dyn AggregatedObjects>>,
    graph: Mutex<Graph>,
    queue: Arc<Queue<String>>,
    recorder: Recorder,
    supervisor: Supervisor,
}

impl ObjectHandler for Collector {
    fn on_change(&self, kind: &Arc<Kind>, change: Change<'_>) {
        let mut graph = self.graph.lock();
        let mut look = Vec::new();
        if let Some(new) = change.new {
            look = graph.put(&new.meta.uid, Node::of(&kind.prefix(), new));
        }
        if let Some(old) = change.old
            && change.new.is_none_or(|new| new.meta.uid != old.meta.uid)
        {
            look.extend(graph.remove(&old.meta.uid));
        }
        look.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn on_resync(&self, kind: &Arc<Kind>, cache: &Cache) {
        let prefix = kind.prefix();
        let objects = cache.list(None);
        let there: BTreeSet<&str> = objects.iter().map(|o| o.meta.uid.as_str()).collect();
        let mut graph = self.graph.lock();
        let mut look: Vec<String> = Vec::new();
        for uid in graph.of_kind(&prefix).into_iter().filter(|uid| !there.contains(uid.as_str())) {
            look.extend(graph.remove(&uid));
        }
        for object in &objects {
            look.extend(graph.put(&object.meta.uid, Node::of(&prefix, object)));
        }
        look.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn on_kind_removed(&self, kind: &Arc<Kind>) {
        let mut graph = self.graph.lock();
        for uid in graph.of_kind(&kind.prefix()) {
            graph.remove(&uid).into_iter().for_each(|uid| self.queue.add(uid));
        }
    }
}

impl Collector {
    /// A collector with an empty graph.
    pub fn new(
        client: Client,
        extensions: Option<Arc<dyn AggregatedObjects>>,
        (recorder, supervisor): (Recorder, Supervisor),
    ) -> Arc<Self> {
        let (graph, queue) = (Mutex::default(), Arc::new(Queue::new()));
        Arc::new(Self { client, extensions, graph, queue, recorder, supervisor })
    }

    /// The uids to look at.
    pub fn queue(&self) -> Arc<Queue<String>> {
        self.queue.clone()
    }

    /// Works on what changes bring, without end.
    pub async fn work(self: Arc<Self>) {
        loop {
            let (uid, cause, queued) = self.queue.take_caused().await;
            let mut span = self.begin(&uid, cause, queued);
            let turn = within(span.scope(), self.process(&uid));
            let outcome = self.supervisor.isolate(NAME, || self.subject(&uid), turn).await;
            if !matches!(outcome, Ok(Ok(()))) {
                span.failed();
            }
            drop(span);
            match outcome {
                Err(panicked) => self.report_panic(&uid, &panicked),
                Ok(Ok(())) => self.queue.done(&uid),
                Ok(Err(error)) => {
                    let delay = self.queue.failed(&uid);
                    if !error.is_conflict() {
                        tracing::warn!(controller = NAME, uid, error = %causes::chain(&error), ?delay, "garbage collection failed, will retry");
                    }
                }
            }
        }
    }

    /// Begins the span of a turn that waited in the queue since then.
    fn begin(&self, uid: &str, cause: Cause, queued: Instant) -> ReconcileSpan {
        let spans = self.client.recorder();
        let Some(clock) = spans.clock() else { return spans.reconcile(NAME, "", cause, Moment::MAX) };
        let name = self.graph.lock().get(uid).map(|node| node.name.to_string());
        spans.reconcile(NAME, name.as_deref().unwrap_or(uid), cause, clock.of(queued))
    }

    /// The kind and the name of what is known by a uid.
    fn find(&self, uid: &str) -> Option<(Arc<Kind>, Name)> {
        let node = self.graph.lock().get(uid).cloned()?;
        Some((kinds(&self.client).get(&node.kind).cloned()?, node.name))
    }

    fn subject(&self, uid: &str) -> Subject {
        match self.find(uid) {
            Some((kind, name)) => Subject::new(&kind.plural, &name.namespace, &name.name),
            None => Subject::new("objects", "", uid),
        }
    }

    /// A turn panicked: the object waits for long and says so, the others go on.
    fn report_panic(&self, uid: &str, panicked: &Panicked) {
        self.queue.panicked(&uid.to_owned());
        let Some((kind, name)) = self.find(uid) else { return };
        if let Some(object) = self.client.cache(&kind).get(&name.namespace, &name.name) {
            let text = format!("{NAME} panicked and tries again later: {panicked}");
            let of = (&*kind.api_version(), &*kind.kind);
            self.recorder.send(EventDraft::new(of, &object, Severity::Warning, "ReconcilePanicked", text));
        }
    }

    async fn process(&self, uid: &str) -> Result<(), Failure> {
        let Some(node) = self.graph.lock().get(uid).cloned() else { return Ok(()) };
        let Some(kind) = kinds(&self.client).get(&node.kind).cloned() else { return Ok(()) };
        let Ok(latest) = self.client.get_whole(&kind, &node.name.namespace, &node.name.name).await else {
            return Ok(());
        };
        if latest.meta.uid != uid {
            return Ok(());
        }
        let mut owners = Vec::new();
        if !node.deleting && !node.failed {
            for owner in &latest.meta.owner_references {
                owners.push((owner.uid.clone(), self.owner(owner, &kind, &node.name.namespace).await?));
                if self.is_aggregated(owner) {
                    self.queue.add_after(uid.to_owned(), AGGREGATED_RECHECK);
                }
            }
        }
        let decision = self.graph.lock().decide(uid, &owners);
        match decision {
            Decision::Leave => Ok(()),
            Decision::Descend(dependents) => {
                dependents.into_iter().for_each(|uid| self.queue.add(uid));
                Ok(())
            }
            Decision::Finish => self.remove_finalizer(&kind, &latest, FOREGROUND).await,
            Decision::Orphan(dependents) => {
                for dependent in dependents {
                    self.orphan(&dependent, uid).await?;
                }
                self.orphan_unseen(uid, &node.name.namespace).await?;
                self.remove_finalizer(&kind, &latest, ORPHAN).await
            }
            Decision::RemoveOwners(gone) => self.remove_owners(&kind, &latest, &gone).await,
            Decision::Delete { foreground, unblock } => {
                if unblock {
                    self.unblock(&kind, &latest).await?;
                }
                self.delete(&kind, &latest, foreground).await
            }
        }
    }

    fn is_aggregated(&self, owner: &Owner) -> bool {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        self.client.registry().kind(group, version, &owner.kind).is_none()
    }

    /// The state of the owner that a reference names. A kind that is not served says nothing about its objects: the
    /// dependent stays, and is looked at again later.
    async fn owner(&self, owner: &Owner, dependent: &Kind, namespace: &str) -> Result<OwnerState, Failure> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let registry = self.client.registry();
        let Some(kind) = registry.kind(group, version, &owner.kind) else {
            let namespace = if dependent.namespaced() { namespace } else { "" };
            return self.aggregated_owner(owner, namespace).await;
        };
        if kind.namespaced() && !dependent.namespaced() {
            // Such a reference cannot be resolved; upstream leaves the dependent alone, too.
            return Ok(OwnerState::Present);
        }
        let namespace = if kind.namespaced() { namespace } else { "" };
        match self.client.get_whole(&kind, namespace, &owner.name).await {
            Ok(found) if found.meta.uid == owner.uid => {
                let waiting = found.meta.deletion_timestamp.is_some()
                    && found.meta.finalizers.iter().any(|f| f == FOREGROUND);
                Ok(if waiting { OwnerState::Waiting } else { OwnerState::Present })
            }
            Ok(_) => Ok(OwnerState::Absent),
            Err(error) if error.is_not_found() => Ok(OwnerState::Absent),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for an owner on an aggregated API server.
    async fn aggregated_owner(&self, owner: &Owner, namespace: &str) -> Result<OwnerState, Failure> {
        let user = User::service_account("kube-system", NAME);
        let kept = match &self.extensions {
            Some(extensions) => extensions.owner_exists(owner, namespace, &user).await,
            None => None,
        };
        match kept {
            Some(Ok(true)) => Ok(OwnerState::Present),
            Some(Ok(false)) => Ok(OwnerState::Absent),
            Some(Err(error)) => Err(Failure::of(error)),
            None => {
                let (kind, version) = (owner.kind.clone(), owner.api_version.clone());
                Err(Failure::of(NotServed { kind, version }))
            }
        }
    }

    async fn change(
        &self,
        kind: &Kind,
        object: &Object,
        change: impl Fn(Edit<'_, ObjectMeta>) + Send + Sync,
    ) -> Result<(), Failure> {
        let same = |value: &mut Value| {
            if PartialObjectMetadata::of(value).metadata().uid() == object.meta.uid {
                change(PartialObjectMetadata::edit(value).metadata());
            }
        };
        let name = Name::of(object);
        ignore_gone(self.client.modify(kind, &name.namespace, &name.name, "", same).await.map(|_| ()))
    }

    async fn remove_finalizer(&self, kind: &Kind, object: &Object, finalizer: &str) -> Result<(), Failure> {
        self.change(kind, object, |mut meta| meta.finalizers().retain(|f| f != finalizer)).await
    }

    async fn remove_owners(&self, kind: &Kind, object: &Object, owners: &[String]) -> Result<(), Failure> {
        self.change(kind, object, |mut meta| {
            meta.owner_references().retain(|r| !owners.iter().any(|owner| r.uid() == *owner));
        })
        .await
    }

    async fn unblock(&self, kind: &Kind, object: &Object) -> Result<(), Failure> {
        self.change(kind, object, |mut meta| {
            meta.owner_references().each(|mut r| r.block_owner_deletion().set(false));
        })
        .await
    }

    async fn orphan(&self, dependent: &str, owner: &str) -> Result<(), Failure> {
        let Some(node) = self.graph.lock().get(dependent).cloned() else { return Ok(()) };
        let Some(kind) = kinds(&self.client).get(&node.kind).cloned() else { return Ok(()) };
        match self.client.get_whole(&kind, &node.name.namespace, &node.name.name).await {
            Ok(object) if object.meta.uid == dependent => {
                self.remove_owners(&kind, &object, &[owner.to_owned()]).await
            }
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Orphans dependents that are not in the graph yet: with their reference they would be collected.
    async fn orphan_unseen(&self, owner: &str, namespace: &str) -> Result<(), Failure> {
        let within = Some(namespace).filter(|namespace| !namespace.is_empty());
        let kinds: Vec<_> = kinds(&self.client).values().cloned().collect();
        for kind in kinds {
            let Some(cache) = self.client.find_whole_cache(&kind) else { continue };
            for object in cache.list(within) {
                if object.meta.owner_references.iter().any(|reference| reference.uid == owner) {
                    self.remove_owners(&kind, &object, &[owner.to_owned()]).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes exactly the state that was decided on: an owner added meanwhile saves the object.
    async fn delete(&self, kind: &Kind, object: &Object, foreground: bool) -> Result<(), Failure> {
        let current = self.client.get_whole(kind, &object.meta.namespace, &object.meta.name).await;
        let version = match &current {
            Ok(current) if foreground && current.meta.uid == object.meta.uid => current.revision,
            _ => object.revision,
        };
        let has = |finalizer: &str| object.meta.finalizers.iter().any(|f| f == finalizer);
        let policy = match foreground {
            true => "Foreground",
            false if has(ORPHAN) => "Orphan",
            false if has(FOREGROUND) => "Foreground",
            false => "Background",
        };
        let preconditions =
            Preconditions { uid: Some(object.meta.uid.clone()), resource_version: Some(version.to_string()) };
        let options = DeleteOptions {
            propagation_policy: Some(policy.into()),
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        };
        let (namespace, name) = (&object.meta.namespace, &object.meta.name);
        ignore_gone(self.client.delete(kind, namespace, name, options).await.map(|_| ()))
    }
}

fn ignore_gone(result: Result<(), ApiError>) -> Result<(), Failure> {
    match result {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
