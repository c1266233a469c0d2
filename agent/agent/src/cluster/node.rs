//! Nodes, as the network between them needs them.

use coracle_cni::route::Cidr;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::net::IpAddr;

use super::reflector::FromWire;
use super::wire::{or_default, slim_meta};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its addresses that other nodes reach it on.
    pub ips: Box<[IpAddr]>,
    /// The ranges of its pods.
    pub pod_ranges: Box<[Cidr]>,
    /// Its zone, empty when it has none.
    pub zone: Box<str>,
}

/// A Node as it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct WireNode {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "or_default")]
    status: WireStatus,
}

crate::wire_kind!(WireNode, ClusterResourceScope, "", "v1", "Node", "nodes");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<WireAddress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireAddress {
    r#type: String,
    address: String,
}

impl FromWire for Node {
    type Wire = WireNode;

    fn from_wire(wire: WireNode) -> Option<Self> {
        let WireNode { metadata, spec, status } = wire;
        let ranges = if spec.pod_cidrs.is_empty() { vec![spec.pod_cidr] } else { spec.pod_cidrs };
        let labels = metadata.labels.unwrap_or_default();
        let internal = status.addresses.iter().filter(|address| address.r#type == "InternalIP");
        Some(Node {
            ips: internal.filter_map(|address| address.address.parse().ok()).collect(),
            pod_ranges: ranges.iter().filter_map(|range| range.parse().ok()).collect(),
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
        assert_eq!((node("a").ips.len(), node("a").pod_ranges.len(), &*node("a").zone), (1, 2, "z"));
    }
}
