//! Defaults of Services, endpoints, network policies and ingress classes.

use crate::tree::{Grow, Tree, is_empty};
use serde_json::{Value, json};

/// Three hours, after which a client may meet another pod.
const AFFINITY_SECONDS: i64 = 10_800;

/// A Service; addresses and node ports are allocated elsewhere.
pub fn service(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => {
            spec.drop_key("sessionAffinityConfig");
        }
        "ClientIP" if !spec.has("sessionAffinityConfig.clientIP.timeoutSeconds") => {
            spec.put("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}));
        }
        _ => {}
    }
    spec.default("type", "ClusterIP");
    spec.each("ports", |port| {
        port.default("protocol", "TCP");
        let number = port.at("port").clone();
        port.default_empty("targetPort", number);
    });
    let kind = spec.text("type").to_owned();
    let balanced = kind == "LoadBalancer";
    if balanced || kind == "NodePort" || (kind == "ClusterIP" && !spec.items("externalIPs").is_empty()) {
        spec.default("externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        spec.default("internalTrafficPolicy", "Cluster");
    }
    if balanced {
        spec.default("allocateLoadBalancerNodePorts", true);
    }
    let status = object.section("status").section("loadBalancer");
    if balanced {
        status.each("ingress", |ingress| {
            if !ingress.text("ip").is_empty() {
                ingress.default("ipMode", "VIP");
            }
        });
    }
}

/// Endpoints.
pub fn endpoints(object: &mut Value) {
    object.each("subsets", |subset| subset.each("ports", |port| port.default("protocol", "TCP")));
}

/// An EndpointSlice.
pub fn endpoint_slice(object: &mut Value) {
    object.each("ports", |port| {
        if !port.has("name") {
            port.put("name", "");
        }
        port.default("protocol", "TCP");
    });
}

/// A NetworkPolicy.
pub fn network_policy(object: &mut Value) {
    let spec = object.section("spec");
    spec.section("podSelector");
    for direction in ["ingress", "egress"] {
        spec.each(direction, |rule| rule.each("ports", |port| port.default("protocol", "TCP")));
    }
    if spec.items("policyTypes").is_empty() {
        let both = !is_empty(spec.at("egress"));
        spec.put("policyTypes", if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

/// An IngressClass.
pub fn ingress_class(object: &mut Value) {
    if let Some(parameters) = object.existing("spec").and_then(|spec| spec.existing("parameters")) {
        parameters.default("scope", "Cluster");
    }
}

/// An Ingress always shows its status.
pub fn ingress(object: &mut Value) {
    object.section("status").section("loadBalancer");
}
