//! Where a pod may run. Each file answers for one rule; [`check`] asks them in upstream's order and stops at the first
//! that refuses.

// Cordoned nodes, node names, selectors, node affinity and declared features.
pub mod placement;
// Taints.
pub mod taints;
// Host ports.
pub mod ports;
// CPU, memory, storage, pods, extended resources.
pub mod resources;
// Topology spread.
pub mod spread;
// Affinity and anti-affinity to pods.
pub mod pod_affinity;

use super::devices::Devices;
use super::node::NodeInfo;
use super::pod::PodInfo;
use super::rejection::{Plugin, Rejection};
use super::snapshot::{NodeId, Snapshot};
use std::sync::Arc;

/// What is known about a pod before nodes are looked at: counts for its rules.
#[derive(Debug)]
pub struct Query {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Its hard spread constraints.
    pub spread: spread::RequiredSpread,
    /// Its rules about pods, and those of pods about it.
    pub pod_affinity: pod_affinity::RequiredAffinity,
}

impl Query {
    /// Looks up counts for the pod's rules.
    pub fn new(snapshot: &mut Snapshot, pod: Arc<PodInfo>) -> Self {
        snapshot.devices.refresh();
        let pod_affinity = pod_affinity::RequiredAffinity::new(snapshot, &pod);
        let spread = spread::RequiredSpread::new(snapshot, &pod);
        Self { pod, spread, pod_affinity }
    }
}

/// Whether the node may ever host the pod, whatever runs there.
pub fn fixed(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let applies = |plugin| !pod.skips(plugin);
    if applies(Plugin::NodeUnschedulable) {
        placement::unschedulable(pod, node)?;
    }
    if applies(Plugin::NodeName) {
        placement::name(pod, node)?;
    }
    if applies(Plugin::TaintToleration) {
        taints::check(pod, node)?;
    }
    if applies(Plugin::NodeAffinity) {
        placement::affinity(pod, node)?;
    }
    if applies(Plugin::NodeDeclaredFeatures) { placement::features(pod, node) } else { Ok(()) }
}

/// Whether the pod fits beside the pods on the node and nominated pods of higher priority.
pub fn local(pod: &PodInfo, node: &NodeInfo, devices: &Devices) -> Result<(), Rejection> {
    let promised: Vec<&PodInfo> = node
        .nominated
        .iter()
        .filter(|n| n.priority >= pod.priority && n.key != pod.key)
        .map(AsRef::as_ref)
        .collect();
    if !pod.skips(Plugin::NodePorts) {
        ports::check(pod, node, &promised)?;
    }
    if pod.skips(Plugin::NodeResourcesFit) {
        return Ok(());
    }
    resources::check(pod, node, &promised, devices)
}

/// Whether the pod may run on the node now.
pub fn check(snapshot: &Snapshot, query: &Query, id: NodeId) -> Result<(), Rejection> {
    let Some(node) = snapshot.node(id) else {
        return Err(Rejection::hopeless(Plugin::NodeName, "node(s) didn't match the requested node name"));
    };
    fixed(&query.pod, node)?;
    local(&query.pod, node, &snapshot.devices)?;
    snapshot.volumes.check(&query.pod, node)?;
    query.spread.check(snapshot, id)?;
    query.pod_affinity.check(snapshot, id)?;
    snapshot.devices.check(&query.pod, node)
}
