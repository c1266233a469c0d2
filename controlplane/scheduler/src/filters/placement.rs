//! Cordoned nodes, node names, selectors, node affinity and declared features.

use super::super::node::NodeInfo;
use super::super::node_selector::selects;
use super::super::pod::PodInfo;
use super::super::wire::Taint;
use super::taints::tolerates;
use crate::rejection::{Plugin, Rejection};

/// A cordoned node takes only pods that tolerate being there.
pub fn unschedulable(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let cordon = || Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    if node.unschedulable && !tolerates(&pod.tolerations, &cordon()) {
        return Err(Rejection::hopeless(Plugin::NodeUnschedulable, "node(s) were unschedulable"));
    }
    Ok(())
}

/// A pod that names its node goes nowhere else.
pub fn name(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.node.is_empty() || pod.node == node.name {
        return Ok(());
    }
    Err(Rejection::hopeless(Plugin::NodeName, "node(s) didn't match the requested node name"))
}

/// The node affinity that the pod's profile adds, then the node selector and the required node affinity of the pod.
pub fn affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let enforced = pod.rules.as_ref().and_then(|rules| rules.enforced.as_ref());
    if enforced.is_some_and(|selector| !selects(selector, node)) {
        let why = "node(s) didn't match scheduler-enforced node affinity";
        return Err(Rejection::hopeless(Plugin::NodeAffinity, why));
    }
    if admits(pod, node) {
        return Ok(());
    }
    Err(Rejection::hopeless(Plugin::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"))
}

/// Features that the pod needs are declared.
pub fn features(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if node.features.has(pod.features) {
        return Ok(());
    }
    let why = "node(s) didn't match Pod's required features";
    Err(Rejection::hopeless(Plugin::NodeDeclaredFeatures, why))
}

/// Whether the pod's selector and required affinity admit the node.
pub fn admits(pod: &PodInfo, node: &NodeInfo) -> bool {
    pod.node_selector.iter().all(|(k, v)| node.labels.get(k) == Some(v))
        && pod.node_required.as_ref().is_none_or(|selector| selects(selector, node))
}
