//! Garbage collection of pods: on deleted nodes, terminating and never bound, on out-of-service nodes, or finished beyond the
//! limit.

use super::nodes::{disruption, health::Node, health::OUT_OF_SERVICE};
use async_trait::async_trait;
use coracle_informer::conditions::Condition;
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::pod::{Pod, has_ended, node_of};
use coracle_informer::resource::{Resource, same_uid};
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

const NAME: &str = "pod-garbage-collector";
/// How many ended pods are kept.
const ENDED_KEPT: usize = 12_500;
/// How long a node must be gone before its pods are.
const QUARANTINE_SECONDS: i64 = 40;

struct PodGc {
    pods: Resource,
    nodes: Resource,
    index: Arc<Pods>,
    /// Since when nodes are missing.
    missing: Mutex<HashMap<String, Timestamp>>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let pods = setup.resource(NAME, "", "pods");
    let nodes = setup.resource(NAME, "", "nodes");
    let index = setup.pods();
    let there = nodes.cache.clone();
    // Of a node that goes, or is out of service, the pods come from the node's own change.
    let mut handlers = setup.enqueue_matching(&pods, move |pod| {
        let node = node_of(pod);
        let deserted = !node.is_empty() && there.get("", node).is_none();
        deserted || pod.meta.deletion_timestamp.is_some() || has_ended(pod)
    });
    let on_node = index.clone();
    handlers.on_change(&nodes.kind, &nodes.cache, move |change, add| {
        let tainted = |n: &Arc<coracle_kinds::object::Object>| {
            n.typed::<Node>().is_ok_and(|n| n.tainted(OUT_OF_SERVICE))
        };
        if let Some(node) = change.object()
            && (change.new.is_none() || change.new.is_some_and(tainted))
        {
            on_node.on_node(&node.meta.name).iter().for_each(|p| add(Name::of(&p.object)));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(PodGc { pods, nodes, index, missing: Mutex::default() }, &queue, 2);
}

#[async_trait]
impl Controller for PodGc {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(pod) = self.index.get(name) else { return Ok(Requeue::No) };
        if pod.node.is_empty() {
            if pod.terminating() {
                self.remove(&pod, None, now).await?;
            }
            return Ok(Requeue::No);
        }
        let Some(node) = self.nodes.get(&Name::new("", &pod.node)) else {
            let since = *self.missing.lock().entry(pod.node.clone()).or_insert(now);
            let due = time::after(since, QUARANTINE_SECONDS);
            if now < due {
                return Ok(Requeue::At(due));
            }
            // The cache may lag behind another server; a pod is not given up on its word alone.
            if self.nodes.fresh(&Name::new("", &pod.node)).await.is_err_and(|e| e.is_not_found()) {
                self.remove(&pod, Some("PodGC: node no longer exists"), now).await?;
            }
            return Ok(Requeue::No);
        };
        self.missing.lock().remove(&pod.node);
        let node: Node = node.typed()?;
        if pod.terminating() && node.readiness() != "True" && node.tainted(OUT_OF_SERVICE) {
            self.remove(&pod, Some("PodGC: node is out of service"), now).await?;
        } else if pod.ended() {
            self.limit_ended(now).await?;
        }
        Ok(Requeue::No)
    }
}

impl PodGc {
    /// Removes a pod at once; one that has not ended is marked failed before, so that its owner replaces it.
    async fn remove(&self, pod: &Pod, why: Option<&str>, now: Timestamp) -> Result<(), Failure> {
        if !pod.ended()
            && let Some(why) = why
        {
            let target = Condition::new("DisruptionTarget", true, "DeletionByPodGC", why, now);
            let mut change = disruption(&pod.object, target);
            change.edit().status().phase().set("Failed");
            self.pods.merge_lists(&Name::of(&pod.object), "status", change).await?;
        }
        let mut options = same_uid(&pod.object);
        options.grace_period_seconds = Some(0);
        self.pods.delete_with(&Name::of(&pod.object), options).await?;
        Ok(())
    }

    async fn limit_ended(&self, now: Timestamp) -> Result<(), Failure> {
        if self.pods.cache.len() <= ENDED_KEPT {
            return Ok(());
        }
        let mut ended: Vec<Pod> =
            self.pods.all().iter().map(Pod::read).filter(|p| p.ended() && !p.terminating()).collect();
        let excess = ended.len().saturating_sub(ENDED_KEPT);
        ended.sort_by_key(|p| p.created);
        for pod in ended.iter().take(excess) {
            self.remove(pod, None, now).await?;
        }
        Ok(())
    }
}
