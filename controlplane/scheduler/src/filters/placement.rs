//! Cordoned nodes, node names, selectors and node affinity.

use super::super::node::NodeInfo;
use super::super::pod::PodInfo;
use super::super::wire::{NodeRequirement, NodeSelector, NodeTerm, Taint};
use super::taints::tolerates;
use super::{Plugin, Rejection};

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

/// The node selector and the required node affinity.
pub fn affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if admits(pod, node) {
        return Ok(());
    }
    Err(Rejection::hopeless(Plugin::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"))
}

/// Whether the pod's selector and required affinity admit the node.
pub fn admits(pod: &PodInfo, node: &NodeInfo) -> bool {
    pod.node_selector.iter().all(|(k, v)| node.labels.get(k) == Some(v))
        && pod.node_required.as_ref().is_none_or(|selector| selects(selector, node))
}

/// Whether any term of a selector matches the node.
pub fn selects(selector: &NodeSelector, node: &NodeInfo) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// Whether all of a term matches; an empty one matches nothing.
pub fn term_matches(term: &NodeTerm, node: &NodeInfo) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let label = |r: &NodeRequirement| holds(r, node.labels.get(&r.key).map(String::as_str));
    let field = |r: &NodeRequirement| r.key == "metadata.name" && holds(r, Some(&node.name));
    term.match_expressions.iter().all(label) && term.match_fields.iter().all(field)
}

fn holds(requirement: &NodeRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|v| v == value);
    let compare = |order: std::cmp::Ordering| {
        let bound: Option<i64> = requirement.values.first().and_then(|v| v.parse().ok());
        let value: Option<i64> = value.and_then(|v| v.parse().ok());
        matches!((value, bound), (Some(value), Some(bound)) if value.cmp(&bound) == order)
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}
