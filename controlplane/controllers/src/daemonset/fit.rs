//! Whether a daemon's pod belongs on a node: selectors, affinity, taints. No clock, no tasks.

use crate::nodes::health::{Taint, Toleration};
use coracle_fields::core::v1;
use coracle_fields::{Made, View, fields, make};
use coracle_informer::selector::Labels;
use serde_json::Value;

/// A node, as far as placement is concerned.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
}

fields! {
    /// The placement part of a pod template's spec.
    #[derive(Debug, Clone)]
    pub struct Placement: v1::PodSpec {
        node_name: String,
        node_selector: Labels,
        affinity: Affinity,
        tolerations: Vec<Toleration>,
    }

    #[derive(Debug, Clone)]
    struct Affinity: v1::Affinity {
        node_affinity: NodeAffinity,
    }

    #[derive(Debug, Clone)]
    struct NodeAffinity: v1::NodeAffinity {
        required_during_scheduling_ignored_during_execution: Option<Required>,
    }

    #[derive(Debug, Clone)]
    struct Required: v1::NodeSelector {
        node_selector_terms: Vec<Term>,
    }

    #[derive(Debug, Clone)]
    struct Term: v1::NodeSelectorTerm {
        match_expressions: Vec<Requirement>,
        match_fields: Vec<Requirement>,
    }

    #[derive(Debug, Clone)]
    struct Requirement: v1::NodeSelectorRequirement {
        key: String,
        operator: String,
        values: Vec<String>,
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |wanted: fn(i64, i64) -> bool| {
            let (Some(value), Some(limit)) =
                (value.and_then(number), self.values.first().and_then(|v| number(v)))
            else {
                return false;
            };
            wanted(value, limit)
        };
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.iter().any(|x| x == v)),
            "NotIn" => value.is_none_or(|v| !self.values.iter().any(|x| x == v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(|value, limit| value > limit),
            "Lt" => compare(|value, limit| value < limit),
            _ => false,
        }
    }
}

impl Term {
    fn matches(&self, node: &Node) -> bool {
        let some = !self.match_expressions.is_empty() || !self.match_fields.is_empty();
        let label = |r: &Requirement| r.holds(node.labels.get(&r.key).map(String::as_str));
        let field = |r: &Requirement| r.key == "metadata.name" && r.holds(Some(&node.name));
        some && self.match_expressions.iter().all(label) && self.match_fields.iter().all(field)
    }
}

/// Tolerations every daemon's pod has, so that it runs where others may not.
fn daemon_tolerations(host_network: bool) -> Vec<Made<v1::Toleration>> {
    let taints = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    let host = host_network.then_some(("network-unavailable", "NoSchedule"));
    let each = taints.into_iter().chain(host).map(|(key, effect)| {
        make!(part v1::Toleration {
            key: format!("node.kubernetes.io/{key}"),
            operator: "Exists",
            effect,
        })
    });
    each.collect()
}

/// The spec of a daemon's pod for any node.
pub fn with_tolerations(spec: View<'_, v1::PodSpec>) -> Made<v1::PodSpec> {
    let mut all = spec.tolerations().to_values();
    for toleration in daemon_tolerations(spec.host_network().flag()) {
        let toleration = toleration.into_value();
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    let mut spec = Made::<v1::PodSpec>::new(spec.to_value());
    spec.edit().tolerations().put(Value::Array(all));
    spec
}

/// The spec of a daemon's pod for one node: the scheduler may bind it there and nowhere else.
pub fn pinned(spec: View<'_, v1::PodSpec>, node: &str) -> Made<v1::PodSpec> {
    let field = make!(part v1::NodeSelectorRequirement {
        key: "metadata.name",
        operator: "In",
        values: [node],
    });
    let mut spec = Made::<v1::PodSpec>::new(spec.to_value());
    let mut root = spec.edit();
    let mut affinity = root.affinity();
    let mut node_affinity = affinity.node_affinity();
    let mut required = node_affinity.required_during_scheduling_ignored_during_execution();
    let mut terms = required.node_selector_terms();
    if terms.view().is_empty() {
        terms.add().match_fields().push(field);
    } else {
        terms.each(|mut term| term.match_fields().set([&field]));
    }
    spec
}

/// The node that [`pinned`] named.
pub fn pinned_node(spec: View<'_, v1::PodSpec>) -> Option<&str> {
    let required = spec.affinity().node_affinity().required_during_scheduling_ignored_during_execution();
    let fields = required.node_selector_terms().items().flat_map(|term| term.match_fields().items());
    fields.filter(|field| field.key() == "metadata.name").find_map(|field| field.values().nth(0).get())
}

/// Whether the pod should be started on a node, and whether one that is there may stay.
pub fn fits(placement: &Placement, node: &Node) -> (bool, bool) {
    let named = placement.node_name.is_empty() || placement.node_name == node.name;
    let selected = placement.node_selector.iter().all(|(k, v)| node.labels.get(k) == Some(v));
    let required =
        placement.affinity.node_affinity.required_during_scheduling_ignored_during_execution.as_ref();
    let affine = required.is_none_or(|r| r.node_selector_terms.iter().any(|t| t.matches(node)));
    if !(named && selected && affine) {
        return (false, false);
    }
    let untolerated = |effects: &[&str]| {
        let mut relevant = node.taints.iter().filter(|t| effects.contains(&t.effect.as_str()));
        relevant.any(|t| !placement.tolerations.iter().any(|x| x.tolerates(t)))
    };
    (!untolerated(&["NoSchedule", "NoExecute"]), !untolerated(&["NoExecute"]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::json;

    fn node(labels: &[(&str, &str)], taints: &[(&str, &str)]) -> Node {
        let taint = |(key, effect): &(&str, &str)| Taint {
            key: (*key).into(),
            effect: (*effect).into(),
            ..Taint::default()
        };
        Node {
            name: "n1".into(),
            labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            taints: taints.iter().map(taint).collect(),
        }
    }

    #[test]
    fn where_daemons_run() {
        let plain = node(&[("disk", "ssd"), ("cores", "8")], &[]);
        let expression = |operator: &str, key: &str, value: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}]}}}})
        };
        for (spec, node, want) in [
            (json!({}), &plain, (true, true)),
            (json!({"nodeSelector": {"disk": "ssd"}}), &plain, (true, true)),
            (json!({"nodeSelector": {"disk": "hdd"}}), &plain, (false, false)),
            (json!({"nodeName": "n2"}), &plain, (false, false)),
            (expression("In", "disk", "ssd"), &plain, (true, true)),
            (expression("Gt", "cores", "4"), &plain, (true, true)),
            (expression("Lt", "cores", "4"), &plain, (false, false)),
            (expression("NotIn", "disk", "ssd"), &plain, (false, false)),
            (json!({}), &node(&[], &[("x", "NoSchedule")]), (false, true)),
            (json!({}), &node(&[], &[("x", "NoExecute")]), (false, false)),
            (
                json!({"tolerations": [{"operator": "Exists"}]}),
                &node(&[], &[("x", "NoExecute")]),
                (true, true),
            ),
            (json!({}), &node(&[], &[("node.kubernetes.io/unschedulable", "NoSchedule")]), (true, true)),
            (json!({}), &node(&[], &[("node.kubernetes.io/not-ready", "NoExecute")]), (true, true)),
        ] {
            let full = with_tolerations(v1::PodSpec::of(&spec)).into_value();
            let placement: Placement = serde_json::from_value(full).unwrap();
            assert_eq!(fits(&placement, node), want, "{spec} on {node:?}");
        }
        let spec = pinned(v1::PodSpec::of(&expression("In", "disk", "ssd")), "n7");
        assert_eq!(pinned_node(spec.view()), Some("n7"));
        let spec = pinned(v1::PodSpec::of(&json!({})), "n8");
        assert_eq!(pinned_node(spec.view()), Some("n8"));
    }
}
