//! Defaults of Services, endpoints, network policies and ingress classes.

use coracle_fields::core::v1::{Endpoints, Service, SessionAffinityConfig};
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::networking::v1::{Ingress, IngressClass, NetworkPolicy};
use coracle_fields::{Schema, make};
use serde_json::Value;

/// Three hours, after which a client may meet another pod.
const AFFINITY_SECONDS: i32 = 10_800;

/// A Service; addresses and node ports are allocated elsewhere.
pub fn service(object: &mut Value) {
    let mut service = Service::edit(object);
    let mut spec = service.spec().section();
    spec.session_affinity().default("None");
    match spec.view().session_affinity().text() {
        "None" => spec.session_affinity_config().clear(),
        "ClientIP" if !spec.view().session_affinity_config().client_ip().timeout_seconds().is_set() => {
            let config =
                make!(part SessionAffinityConfig { client_ip: { timeout_seconds: AFFINITY_SECONDS } });
            spec.session_affinity_config().set(config);
        }
        _ => {}
    }
    spec.type_().default("ClusterIP");
    spec.ports().each_object(|mut port| {
        port.protocol().default("TCP");
        let number = port.view().port().int();
        port.target_port().default_empty(number);
    });
    let kind = spec.view().type_().text().to_owned();
    let balanced = kind == "LoadBalancer";
    let external = kind == "ClusterIP" && !spec.view().external_ips().is_empty();
    if balanced || kind == "NodePort" || external {
        spec.external_traffic_policy().default("Cluster");
    }
    if kind != "ExternalName" {
        spec.internal_traffic_policy().default("Cluster");
    }
    if balanced {
        spec.allocate_load_balancer_node_ports().default(true);
    }
    let mut status = service.status().section();
    let mut balancer = status.load_balancer().section();
    if balanced {
        balancer.ingress().each_object(|mut ingress| {
            if !ingress.view().ip().text().is_empty() {
                ingress.ip_mode().default("VIP");
            }
        });
    }
}

/// Endpoints.
pub fn endpoints(object: &mut Value) {
    Endpoints::edit(object).subsets().each_object(|mut subset| {
        subset.ports().each_object(|mut port| port.protocol().default("TCP"));
    });
}

/// An EndpointSlice.
pub fn endpoint_slice(object: &mut Value) {
    EndpointSlice::edit(object).ports().each_object(|mut port| {
        port.name().default("");
        port.protocol().default("TCP");
    });
}

/// A NetworkPolicy.
pub fn network_policy(object: &mut Value) {
    let mut policy = NetworkPolicy::edit(object);
    let mut spec = policy.spec().section();
    spec.pod_selector().section();
    spec.ingress().each_object(|mut rule| {
        rule.ports().each_object(|mut port| port.protocol().default("TCP"));
    });
    spec.egress().each_object(|mut rule| {
        rule.ports().each_object(|mut port| port.protocol().default("TCP"));
    });
    if spec.view().policy_types().is_empty() {
        let both = !spec.view().egress().is_empty();
        spec.policy_types().set(if both { vec!["Ingress", "Egress"] } else { vec!["Ingress"] });
    }
}

/// An IngressClass.
pub fn ingress_class(object: &mut Value) {
    if let Some(mut parameters) = IngressClass::edit(object).spec().parameters().existing() {
        parameters.scope().default("Cluster");
    }
}

/// An Ingress always shows its status.
pub fn ingress(object: &mut Value) {
    Ingress::edit(object).status().load_balancer().section();
}
