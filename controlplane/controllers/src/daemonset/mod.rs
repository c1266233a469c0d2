//! DaemonSets: one pod on each node it belongs to.

// Which nodes.
pub mod fit;
// How long failed pods stay.
pub mod failed_pods;
// The next step.
pub mod plan;

use super::history::{History, Subject};
use super::nodes::health;
use super::replicas::{PodControl, pod_of};
use async_trait::async_trait;
use coracle_fields::Made;
use coracle_fields::core::v1;
use coracle_informer::identity::Identity;
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::pod::Pod;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use failed_pods::FailedPods;
use fit::Node;
use jiff::Timestamp;
use parking_lot::Mutex;
use plan::{DaemonSet, REVISION_LABEL, Spec};
use std::collections::BTreeSet;
use std::sync::Arc;

const NAME: &str = "daemonset-controller";
const IDENTITY: Identity = Identity::of("daemon-set-controller").with_events(NAME);

struct Daemons {
    control: PodControl,
    nodes: Resource,
    history: History,
    pods: Arc<Pods>,
    failed: Mutex<FailedPods>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let owners = setup.resource(IDENTITY, "apps", "daemonsets");
    let pods = setup.resource(IDENTITY, "", "pods");
    let nodes = setup.resource(IDENTITY, "", "nodes");
    let revisions = setup.resource(IDENTITY, "apps", "controllerrevisions");
    let index = setup.pods();
    let all = owners.cache.clone();
    let mut handlers = setup.enqueue_on_change(&owners);
    handlers.owned_or_matching(&pods.kind, &pods.cache, "DaemonSet");
    handlers.owned(&revisions.kind, &revisions.cache, "DaemonSet");
    handlers.on_change(&nodes.kind, &nodes.cache, move |change, add| {
        let view = |o: &Arc<Object>| node_of(o).map(|n| (n.labels, n.taints));
        if change.old.and_then(view) != change.new.and_then(view) {
            all.list(None).iter().for_each(|o| add(Name::of(o)));
        }
    });
    let queue = handlers.queue.clone();
    let history = History::new(revisions, REVISION_LABEL);
    let control = PodControl { owners, pods, finalizer: None };
    setup.run(Daemons { control, nodes, history, pods: index, failed: Mutex::default() }, &queue, 2);
}

fn node_of(object: &Arc<Object>) -> Option<Node> {
    let node: health::Node = object.typed().ok()?;
    let (name, labels) = (object.meta.name.clone(), object.meta.labels.clone());
    Some(Node { name, labels, taints: node.spec.taints })
}

#[async_trait]
impl Controller for Daemons {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(set) = self.control.owners.get(name) else { return Ok(Requeue::No) };
        let DaemonSet { spec, status } = set.typed()?;
        if spec.selector.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.owners.warn(&set, "SelectingAll", message);
            return Ok(Requeue::No);
        }
        let nodes: Vec<Node> = self.nodes.all().iter().filter_map(node_of).collect();
        let mut candidates = self.pods.owned(&set.meta.uid);
        candidates.extend(self.pods.orphans(&name.namespace));
        let mine = self.control.claim(&set, &spec.selector, candidates).await?;

        let subject = Subject {
            owners: &self.control.owners,
            object: &set,
            selector: &spec.selector,
            reference: self.control.reference(&set),
            template: &spec.template,
            collisions: status.collision_count,
        };
        let (revisions, collisions) = match self.history.sync(&subject).await {
            Err(Failure::Api(error)) if error.is_namespace_terminating() => return Ok(Requeue::No),
            result => result?,
        };
        let Some(newest) = revisions.last() else { return Ok(Requeue::No) };
        let hash = newest.object.meta.labels.get(REVISION_LABEL).cloned().unwrap_or_default();

        let mut again = None;
        let mut outcome = Ok(());
        if set.meta.deletion_timestamp.is_none() {
            let key = (set.meta.uid.as_str(), status.observed_generation);
            let mut hold = |node: &str| self.failed.lock().hold(key, node, now);
            let plan = plan::plan(&spec, &nodes, &plan::by_node(mine), &hash, now, &mut hold);
            again = plan.again;
            outcome = self.execute(&set, &spec, &hash, &plan).await;
        }
        let after = plan::by_node(self.pods.owned(&set.meta.uid));
        let told = plan::status(&spec, set.meta.generation, &nodes, &after, (&hash, collisions), now);
        self.control.owners.set_status(&set, told).await?;
        outcome?;
        let hashes: BTreeSet<String> =
            after.values().flatten().filter_map(|p| p.labels().get(REVISION_LABEL).cloned()).collect();
        let in_use = |r: &&super::history::Revision| {
            r.name() == newest.name()
                || r.object.meta.labels.get(REVISION_LABEL).is_some_and(|h| hashes.contains(h))
        };
        let live = revisions.iter().filter(in_use).map(|r| r.name().to_owned()).collect();
        self.history.limit(&revisions, &live, spec.revision_history_limit).await?;
        Ok(again.into())
    }
}

impl Daemons {
    async fn execute(
        &self,
        set: &Arc<Object>,
        spec: &Spec,
        hash: &str,
        plan: &plan::Plan,
    ) -> Result<(), Failure> {
        for pod in &plan.failed {
            let message = format!(
                "Found failed daemon pod {}/{} on node {}, will try to kill it",
                set.meta.namespace,
                pod.name(),
                pod.node
            );
            self.control.owners.warn(set, "FailedDaemonPod", message);
        }
        for pod in &plan.succeeded {
            let message = format!(
                "Found succeeded daemon pod {}/{} on node {}, will try to delete it",
                set.meta.namespace,
                pod.name(),
                pod.node
            );
            self.control.owners.normal(set, "SucceededDaemonPod", message);
        }
        let ended = plan.failed.iter().chain(&plan.succeeded);
        let gone: Vec<&Pod> = ended.chain(&plan.delete).map(|p| &**p).collect();
        let mut template = Made::<v1::PodTemplateSpec>::new(spec.template.clone());
        template.edit().metadata().labels().insert(REVISION_LABEL, hash);
        let base = fit::with_tolerations(template.view().spec());
        let reference = self.control.reference(set);
        let pods = plan.create.iter().map(|node| {
            let mut pod = pod_of(template.view(), set, reference.clone());
            pod.edit().spec().set(fit::pinned(base.view(), node));
            pod
        });
        let (_, created) = self.control.create_all(set, pods.collect()).await;
        self.control.delete_all(set, gone.iter().map(|p| &*p.object)).await?;
        created?;
        Ok(())
    }
}
