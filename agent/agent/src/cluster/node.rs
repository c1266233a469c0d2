//! Nodes, as the network between them needs them.

use coracle_cni::route::Cidr;
use coracle_fields::core::v1;
use coracle_fields::fields;
use k8s_openapi::ClusterResourceScope;
use std::net::IpAddr;

use super::reflector::FromWire;
use super::wire::SlimMeta;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its addresses that other nodes reach it on.
    pub ips: Box<[IpAddr]>,
    /// The ranges of its pods.
    pub pod_ranges: Box<[Cidr]>,
    /// Its zone, empty when it has none.
    pub zone: Box<str>,
    /// It is being deleted, or is to be by the cluster autoscaler: load balancers must not use it any more.
    pub is_leaving: bool,
}

fields! {
    /// A Node as it is read.
    #[derive(Clone, Debug)]
    pub struct WireNode: v1::Node {
        metadata: SlimMeta,
        spec: WireSpec,
        status: WireStatus,
    }

    #[derive(Clone, Debug)]
    struct WireSpec: v1::NodeSpec {
        pod_cidr: String,
        pod_cidrs: Vec<String>,
        taints: Vec<WireTaint>,
    }

    #[derive(Clone, Debug)]
    struct WireTaint: v1::Taint {
        key: String,
    }

    #[derive(Clone, Debug)]
    struct WireStatus: v1::NodeStatus {
        addresses: Vec<WireAddress>,
    }

    #[derive(Clone, Debug)]
    struct WireAddress: v1::NodeAddress {
        type_: String,
        address: String,
    }
}

crate::wire_kind!(WireNode, ClusterResourceScope, "", "v1", "Node", "nodes");

impl FromWire for Node {
    type Wire = WireNode;

    fn from_wire(wire: WireNode) -> Option<Self> {
        let WireNode { metadata, spec, status } = wire;
        let ranges = if spec.pod_cidrs.is_empty() { vec![spec.pod_cidr] } else { spec.pod_cidrs };
        let is_leaving = metadata.0.deletion_timestamp.is_some()
            || spec.taints.iter().any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler");
        let labels = metadata.0.labels.unwrap_or_default();
        let internal = status.addresses.iter().filter(|address| address.type_ == "InternalIP");
        Some(Node {
            ips: internal.filter_map(|address| address.address.parse().ok()).collect(),
            pod_ranges: ranges.iter().filter_map(|range| range.parse().ok()).collect(),
            is_leaving,
            zone: labels.get("topology.kubernetes.io/zone").map_or("", String::as_str).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn heartbeats_change_nothing() {
        let node = |beat: &str| {
            let wire = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}},
                "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]},
                "status": {"conditions": [{"lastHeartbeatTime": beat}],
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "n"}]}});
            Node::from_wire(serde_json::from_value(wire).unwrap()).unwrap()
        };
        assert_eq!(node("a"), node("b"));
        assert!(!node("a").is_leaving);
        let wire = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}});
        assert!(Node::from_wire(serde_json::from_value(wire).unwrap()).unwrap().is_leaving);
        assert_eq!((node("a").ips.len(), node("a").pod_ranges.len(), &*node("a").zone), (1, 2, "z"));
    }
}
