//! PodTopologyLabels: pods that get a node, or are created with one, get the labels of its zone and region.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::{Binding, Pod};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

/// The name of the plugin.
pub const NAME: &str = "PodTopologyLabels";

const COPIED: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// The plugin.
pub struct PodTopologyLabels;

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && concerns(at)
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if !concerns(at) {
            return Ok(());
        }
        let Some(name) = node_of(object, at.subresource) else { return Ok(()) };
        // What it says of a node that is not there the binding or the scheduler knows.
        let Some(node) = at.find("", "nodes", "", name).await else { return Ok(()) };
        // A Binding has its metadata where a Pod has them, and the binding copies them to the pod.
        for (key, value) in topology(&node.meta.labels) {
            Pod::edit(object).metadata().labels().insert(key, value);
        }
        Ok(())
    }
}

fn concerns(at: &Attributes<'_>) -> bool {
    at.operation == Operation::Create
        && at.kind.stored_group().is_empty()
        && at.kind.plural == "pods"
        && matches!(at.subresource, "" | "binding")
}

/// The node that a new pod has, or that a binding gives.
fn node_of<'o>(object: &'o Value, subresource: &str) -> Option<&'o str> {
    if subresource.is_empty() {
        return Pod::of(object).spec().node_name().filled();
    }
    let target = Binding::of(object).target();
    // As upstream, the kind must be given.
    if target.kind() == "Node" { target.name().filled() } else { None }
}

/// The labels of a node that its pods get.
pub fn topology(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&'static str, &str)> {
    COPIED.into_iter().filter_map(move |key| Some((key, labels.get(key)?.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_get_zone_and_region_of_their_node() {
        let labels = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), format!("{key}!"))).collect();
        let all: BTreeMap<String, String> = labels(&[
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
        ]);
        let copied: Vec<_> = topology(&all).collect();
        assert_eq!(
            copied,
            [
                ("topology.kubernetes.io/region", "topology.kubernetes.io/region!"),
                ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone!")
            ]
        );
        assert_eq!(topology(&labels(&["kubernetes.io/hostname"])).count(), 0);
    }

    #[test]
    fn the_node_is_that_of_the_pod_or_of_the_binding() {
        for (object, subresource, node) in [
            (json!({"spec": {"nodeName": "n"}}), "", Some("n")),
            (json!({"spec": {"nodeName": ""}}), "", None),
            (json!({"spec": {}}), "", None),
            (json!({"target": {"kind": "Node", "name": "n"}}), "binding", Some("n")),
            (json!({"target": {"kind": "", "name": "n"}}), "binding", None),
            (json!({"target": {"kind": "Node"}}), "binding", None),
        ] {
            assert_eq!(node_of(&object, subresource), node, "{object}");
        }
    }
}
