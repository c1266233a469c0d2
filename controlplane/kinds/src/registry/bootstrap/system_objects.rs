//! Namespaces, the `kubernetes` Service, its address range and system priorities.

use super::cluster::Cluster;
use serde_json::{Value, json};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

pub(super) fn objects(cluster: &Cluster<'_>) -> Vec<Value> {
    let mut objects: Vec<Value> = NAMESPACES.iter().map(|name| namespace(name)).collect();
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": cluster.service_ranges},
    }));
    objects.push(service(cluster));
    objects.push(priority(
        "system-node-critical",
        2_000_001_000,
        "For pods a node cannot do without; they are never moved.",
    ));
    objects.push(priority(
        "system-cluster-critical",
        2_000_000_000,
        "For pods a cluster cannot do without; they may move between nodes.",
    ));
    objects
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn service(cluster: &Cluster<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": cluster.service_address, "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": cluster.port}]},
    })
}

/// The cluster's DNS. It has no endpoints: every node answers at its addresses.
pub fn dns(addresses: &[String]) -> Value {
    let policy = if addresses.len() > 1 { "PreferDualStack" } else { "SingleStack" };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
        "spec": {"type": "ClusterIP", "clusterIP": addresses.first(), "clusterIPs": addresses,
            "ipFamilyPolicy": policy, "sessionAffinity": "None",
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53}]},
    })
}

fn priority(name: &str, value: i64, description: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
    })
}
