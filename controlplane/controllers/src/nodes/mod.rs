//! Nodes: their address ranges, their health, and the pods that must leave them.

// Address ranges.
pub mod ranges;
// Conditions, taints, tolerations.
pub mod health;
// When nodes were last heard of.
mod heartbeats;
// How fast nodes are evicted.
pub mod zones;

use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::{Made, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::identity::Identity;
use coracle_informer::index::Pods;
use coracle_informer::informer::{Change, Name};
use coracle_informer::pod::{Pod, node_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Object;
use health::{GRACE, Node, Toleration};
use heartbeats::Heartbeats;
use jiff::Timestamp;
use parking_lot::Mutex;
use ranges::{Pieces, Range};
use std::sync::Arc;
use std::time::Instant;
use zones::{Permission, Rates, Zones};

const LIFECYCLE: &str = "node-controller";
const EVICTION: &str = "taint-eviction-controller";
const EVICTOR: Identity = Identity::of(LIFECYCLE).with_events(EVICTION);
const ALLOCATOR: Identity = Identity::of(LIFECYCLE).with_events("cidrAllocator");
const LEASES: &str = "kube-node-lease";

/// Bits of the network of one node's piece, by family.
const PIECE_V4: u32 = 24;
const PIECE_V6: u32 = 64;

/// Starts the three controllers; `ranges` are the cluster's, one per family, none to leave the nodes without.
pub fn start(setup: &mut Setup<'_>, ranges: &[Range], rates: Rates) {
    start_ranges(setup, ranges);

    let nodes = setup.resource(LIFECYCLE, "", "nodes");
    let leases = setup.resource(LIFECYCLE, "coordination.k8s.io", "leases");
    let pods = setup.resource(LIFECYCLE, "", "pods");
    let index = setup.pods();
    let heartbeats = Arc::new(Heartbeats::default());
    let seen = heartbeats.clone();
    // A renewal is noted and adds nothing to the queue: it is looked at when a node's time is up.
    let on_change = move |change: Change<'_>| match (change.new, change.object()) {
        (Some(lease), _) if lease.meta.namespace == LEASES => {
            seen.renewed(&lease.meta.name, Instant::now());
        }
        (None, Some(lease)) if lease.meta.namespace == LEASES => seen.lease_deleted(&lease.meta.name),
        _ => {}
    };
    // Renewals that were missed are followed by others, well within the grace period.
    setup.informers().on(&leases.kind, &leases.cache, on_change, || {});
    let queue = setup.enqueue_on_change(&nodes).queue.clone();
    let lifecycle = Lifecycle {
        nodes,
        pods,
        index: index.clone(),
        heartbeats,
        zones: Mutex::default(),
        rates,
        queue: queue.clone(),
    };
    setup.run(lifecycle, &queue, 2);

    let pods = setup.resource(EVICTOR, "", "pods");
    let nodes = setup.resource(EVICTOR, "", "nodes");
    let tainted = nodes.cache.clone();
    // Of a node that gets a taint, the pods come from the node's own change.
    let mut handlers = setup.enqueue_matching(&pods, move |pod| {
        tainted.get("", node_of(pod)).is_some_and(|node| may_evict(&node))
    });
    let on_node = index.clone();
    handlers.on_change(&nodes.kind, &nodes.cache, move |change, add| {
        let taints = |o: &Arc<Object>| o.typed::<Node>().map(|n| n.spec.taints).unwrap_or_default();
        let Some(node) = change.new.filter(|n| taints(n) != change.old.map(taints).unwrap_or_default())
        else {
            return;
        };
        on_node.on_node(&node.meta.name).iter().for_each(|p| add(Name::of(&p.object)));
    });
    let queue = handlers.queue.clone();
    setup.run(Eviction { nodes, pods, index }, &queue, 4);
}

/// Whether a node may have a taint that drives pods out. Most have none, and need not be read to know that.
fn may_evict(node: &Object) -> bool {
    std::str::from_utf8(&node.json).is_ok_and(|text| text.contains("\"NoExecute\""))
}

fn start_ranges(setup: &mut Setup<'_>, ranges: &[Range]) {
    if ranges.is_empty() {
        return;
    }
    let nodes = setup.resource(ALLOCATOR, "", "nodes");
    let cut = |range: &Range| {
        let bits = if range.to_string().contains(':') { PIECE_V6 } else { PIECE_V4 };
        Pieces::new(*range, bits)
    };
    let pieces: Arc<Mutex<Vec<Pieces>>> = Arc::new(Mutex::new(ranges.iter().map(cut).collect()));
    let noted = pieces.clone();
    let mut handlers = setup.enqueue_on_change(&nodes);
    handlers.on_change(&nodes.kind, &nodes.cache, move |change: Change<'_>, _| {
        let mut pieces = noted.lock();
        for old in change.old.filter(|_| change.new.is_none()).iter().flat_map(|n| held(n)) {
            pieces.iter_mut().for_each(|p| p.free(&old));
        }
    });
    let queue = handlers.queue.clone();
    // One worker, so that no range is allocated twice.
    setup.run(Ranges { nodes, pieces, loaded: Mutex::new(false) }, &queue, 1);
}

fields! {
    struct NodeCidrs: v1::Node {
        spec: NodeCidrsSpec,
    }

    struct NodeCidrsSpec: v1::NodeSpec {
        pod_cidr: Option<String>,
        pod_cidrs: Vec<String>,
    }
}

/// The ranges a node has.
fn held(node: &Object) -> Vec<String> {
    let spec = node.typed::<NodeCidrs>().unwrap_or_default().spec;
    spec.pod_cidrs.into_iter().chain(spec.pod_cidr).collect()
}

struct Ranges {
    nodes: Resource,
    pieces: Arc<Mutex<Vec<Pieces>>>,
    loaded: Mutex<bool>,
}

/// Every range of the cluster has a node.
#[derive(Debug, thiserror::Error)]
#[error("CIDR allocation failed; there are no remaining CIDRs left")]
struct RangesExhausted;

#[async_trait]
impl Controller for Ranges {
    fn name(&self) -> &'static str {
        "node-ipam"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        // Before the first piece is given, all that nodes have from earlier is noted.
        if !std::mem::replace(&mut *self.loaded.lock(), true) {
            let mut pieces = self.pieces.lock();
            for range in self.nodes.all().iter().flat_map(|n| held(n)) {
                pieces.iter_mut().for_each(|p| p.take(&range));
            }
        }
        let Some(node) = self.nodes.get(name).filter(|n| n.meta.deletion_timestamp.is_none()) else {
            return Ok(Requeue::No);
        };
        let own = held(&node);
        if !own.is_empty() {
            let mut pieces = self.pieces.lock();
            own.iter().for_each(|range| pieces.iter_mut().for_each(|p| p.take(range)));
            return Ok(Requeue::No);
        }
        let given: Option<Vec<String>> = {
            let mut pieces = self.pieces.lock();
            pieces.iter_mut().map(|p| p.give().map(|r| r.to_string())).collect()
        };
        let Some(given) = given else {
            self.nodes.normal(&node, "CIDRNotAvailable", "Node has no pod CIDR: all ranges are taken");
            return Err(Failure::of(RangesExhausted));
        };
        let change = make!(part v1::Node { spec: { pod_cidr: given.first(), pod_cidrs: &given } });
        if let Err(error) = self.nodes.merge(name, change).await {
            let mut pieces = self.pieces.lock();
            given.iter().for_each(|range| pieces.iter_mut().for_each(|p| p.free(range)));
            return Err(error.into());
        }
        Ok(Requeue::No)
    }
}

struct Lifecycle {
    nodes: Resource,
    pods: Resource,
    index: Arc<Pods>,
    heartbeats: Arc<Heartbeats>,
    /// The zones, once all nodes have been looked at.
    zones: Mutex<Option<Zones>>,
    rates: Rates,
    queue: Arc<coracle_informer::queue::Queue<Name>>,
}

#[async_trait]
impl Controller for Lifecycle {
    fn name(&self) -> &'static str {
        "node-lifecycle"
    }

    fn acts_on_time(&self) -> bool {
        true
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(mut object) = self.nodes.get(name) else {
            self.heartbeats.forget(&name.name);
            self.change_zones(&name.name, now, |zones| zones.remove(&name.name, now));
            return Ok(Requeue::No);
        };
        let mut node: Node = object.typed()?;
        if !self.heartbeats.knows(&name.name) {
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.nodes.normal(&object, "RegisteredNode", message);
        }
        let clock = Instant::now();
        let silence =
            clock.saturating_duration_since(self.heartbeats.last(&name.name, node.heartbeat(), clock));
        let left = GRACE.saturating_sub(silence);
        if left.is_zero()
            && let Some(conditions) = health::silenced(&node, now)
        {
            let mut body = object.copy::<v1::Node>();
            body.edit().status().conditions().set(conditions);
            let was_ready = node.readiness() == "True";
            object = self.nodes.write("status", body).await?;
            node = object.typed()?;
            if was_ready {
                let message = format!("Node {} status is now: NodeNotReady", name.name);
                self.nodes.normal(&object, "NodeNotReady", message);
            }
        }
        let ready = node.readiness() == "True";
        self.change_zones(&name.name, now, |zones| zones.set(&name.name, &object.meta.labels, ready, now));
        let evict = self.may_evict(&name.name, &node, now);
        if let Some(taints) = health::taints(&node, evict, now) {
            let mut body = object.copy::<v1::Node>();
            body.edit().spec().taints().set(taints);
            self.nodes.update(body).await?;
        }
        if matches!(node.readiness(), "False" | "Unknown") {
            self.unready_pods(&name.name, now).await?;
        }
        let silent_at = (!left.is_zero()).then(|| now + left);
        let evict_at = if let Permission::At(at) = evict { Some(at) } else { None };
        Ok(silent_at.into_iter().chain(evict_at).min().into())
    }
}

impl Lifecycle {
    /// Changes what is known of a node's zone. When that changes what is permitted to others, every node is queued again.
    fn change_zones(&self, name: &str, now: Timestamp, change: impl FnOnce(&mut Zones) -> bool) {
        let mut known = self.zones.lock();
        let zones = known.get_or_insert_with(|| {
            let mut zones = Zones::new(self.rates);
            for object in self.nodes.all() {
                let ready = object.typed::<Node>().is_ok_and(|n| n.readiness() == "True");
                zones.set(&object.meta.name, &object.meta.labels, ready, now);
            }
            zones
        });
        if change(zones) {
            let others = self.nodes.all().into_iter().filter(|n| n.meta.name != name);
            others.for_each(|n| self.queue.add(Name::of(&n)));
        }
    }

    /// Whether pods may be evicted from a node now.
    fn may_evict(&self, name: &str, node: &Node, now: Timestamp) -> Permission {
        let mut known = self.zones.lock();
        let Some(zones) = known.as_mut() else { return Permission::Later };
        if node.has_failed() && !node.is_evicted() { zones.ask(name, now) } else { zones.goes_on() }
    }

    /// Sets pods on a node that is not ready to not ready, so that they get no requests.
    async fn unready_pods(&self, node: &str, now: Timestamp) -> Result<(), Failure> {
        for pod in self.index.on_node(node).into_iter().filter(|p| p.ready) {
            let mut body = pod.object.copy::<v1::Pod>();
            let mut all: Vec<Condition> = body.view().status().conditions().read().unwrap_or_default();
            if let Some(ready) = all.iter_mut().find(|c| c.kind == "Ready") {
                ready.status = "False".into();
                ready.last_transition_time = Some(time::seconds(now));
            }
            body.edit().status().conditions().set(all);
            match self.pods.write("status", body).await {
                Ok(_) => self.pods.warn(&pod.object, "NodeNotReady", "Node is not ready"),
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

struct Eviction {
    nodes: Resource,
    pods: Resource,
    index: Arc<Pods>,
}

fields! {
    struct PodTolerations: v1::Pod {
        spec: PodTolerationsSpec,
    }

    struct PodTolerationsSpec: v1::PodSpec {
        tolerations: Vec<Toleration>,
    }
}

#[async_trait]
impl Controller for Eviction {
    fn name(&self) -> &'static str {
        EVICTION
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let pod = self.index.get(name).filter(|p| !p.node.is_empty() && !p.terminating());
        let Some(pod) = pod else { return Ok(Requeue::No) };
        let Some(node) = self.nodes.get(&Name::new("", &pod.node)) else { return Ok(Requeue::No) };
        let node: Node = node.typed()?;
        if !node.spec.taints.iter().any(|t| t.effect == "NoExecute") {
            return Ok(Requeue::No);
        }
        let tolerating: PodTolerations = pod.object.typed()?;
        let since = pod.created.unwrap_or(now);
        match health::leave_at(&node.spec.taints, &tolerating.spec.tolerations, since) {
            None => Ok(Requeue::No),
            Some(at) if at > now => Ok(Requeue::At(at)),
            Some(_) => {
                self.evict(&pod, now).await?;
                Ok(Requeue::No)
            }
        }
    }
}

impl Eviction {
    async fn evict(&self, pod: &Pod, now: Timestamp) -> Result<(), Failure> {
        let name = Name::of(&pod.object);
        self.pods.normal(&pod.object, "TaintManagerEviction", format!("Marking for deletion Pod {name}"));
        let message = "Taint manager: deleting due to NoExecute taint";
        let target = Condition::new("DisruptionTarget", true, "DeletionByTaintManager", message, now);
        self.pods.merge_lists(&name, "status", disruption(&pod.object, target)).await?;
        self.pods.delete(&pod.object).await?;
        Ok(())
    }
}

/// The strategic merge patch of a pod's status with a condition that tells why it is taken away.
pub fn disruption(pod: &Object, target: Condition) -> Made<v1::Pod> {
    let doc = pod.doc();
    let known = doc.view::<v1::Pod>().status().conditions().read::<Vec<Condition>>().unwrap_or_default();
    let mut told: Vec<Condition> = known.into_iter().filter(|c| c.kind == target.kind).collect();
    conditions::put(&mut told, target);
    make!(part v1::Pod { metadata: { uid: &pod.meta.uid }, status: { conditions: told } })
}
