//! Nodes that tell nothing of their pods: those of a stock kubelet, of an old agent, or of one that cannot deliver.

use super::super::connect::Connected;
use super::answer::Object;
use super::delivered;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::{Node, Pod};
use std::collections::BTreeMap;

/// Pods whose nodes are asked for.
const ASKED: usize = 50;
/// In the version of our agents.
const OURS: &str = "+coracle";

/// The pods of one node that it has told nothing of.
#[derive(Debug)]
pub(super) struct Silent {
    /// Empty if it is not known.
    node: String,
    /// Of its kubelet; empty if it is not known.
    version: String,
    pods: Vec<Object>,
}

impl Silent {
    /// Whether its spans may come later.
    pub(super) fn may_come(&self) -> bool {
        self.version.is_empty() || self.version.contains(OURS)
    }

    /// What is said about it.
    pub(super) fn note(&self) -> String {
        let (pods, node) = (delivered::pods(&self.pods), &self.node);
        if !self.may_come() {
            let version = &self.version;
            return format!(
                "{node} runs kubelet {version}, which records no spans: what happened to {pods} after the binding is not known; \
                 Events and conditions of the pod are exact to a second"
            );
        }
        match node.as_str() {
            "" => delivered::note(&self.pods),
            node => format!(
                "the spans of {pods} have not arrived from {node}: its agent is late, cannot reach the server, or is too old to \
                 record them"
            ),
        }
    }
}

/// The nodes of pods that nothing is told of.
pub(super) async fn nodes(connected: &Connected, missing: &[Object]) -> Vec<Silent> {
    let mut by_node: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    for (index, pod) in missing.iter().enumerate() {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        // Of many it is the same.
        let node = match index < ASKED {
            true => {
                connected.get(&path).await.ok().map(|pod| Pod::of(&pod).spec().node_name().text().to_owned())
            }
            false => None,
        };
        by_node.entry(node.unwrap_or_default()).or_default().push(pod.clone());
    }
    let mut silent = Vec::new();
    for (node, pods) in by_node {
        let object = match node.is_empty() {
            true => None,
            false => connected.get(&format!("/api/v1/nodes/{node}")).await.ok(),
        };
        let version =
            object.map(|node| Node::of(&node).status().node_info().kubelet_version().text().to_owned());
        silent.push(Silent { node, version: version.unwrap_or_default(), pods });
    }
    silent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said() {
        let pod = Object { resource: "pods".to_owned(), name: "web".to_owned(), ..Object::default() };
        let of = |node: &str, version: &str| Silent {
            node: node.to_owned(),
            version: version.to_owned(),
            pods: vec![pod.clone()],
        };
        let stock = of("n1", "v1.36.0");
        assert!(!stock.may_come());
        assert_eq!(
            stock.note(),
            "n1 runs kubelet v1.36.0, which records no spans: what happened to pod/web after the binding is not known; \
             Events and conditions of the pod are exact to a second"
        );
        // The version does not say whether an agent is too old, and it may not be known.
        for version in ["v1.36.0+coracle.0.0.1", "v1.36.0+coracle.0.1.0", ""] {
            let ours = of("n1", version);
            assert!(ours.may_come(), "{version}");
            assert_eq!(
                ours.note(),
                "the spans of pod/web have not arrived from n1: its agent is late, cannot reach the server, or is too old to \
                 record them",
                "{version}"
            );
        }
        assert!(of("", "").may_come());
        assert_eq!(of("", "").note(), "the spans of pod/web have not arrived from the nodes yet");
    }
}
