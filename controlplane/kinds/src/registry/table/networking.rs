//! Ingresses, network policies and service addresses.

use crate::registry::kinds::{Kind, NameRule, keep_status};
use crate::registry::{columns, strategy};
use coracle_validation::defaults;
use coracle_validation::network;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("networking.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("IngressClass", "ingressclasses")
            .cluster()
            .generation()
            .columns(columns::ingress_class())
            .defaults(defaults::network::ingress_class)
            .validate(network::ingress_class, network::ingress_class_update),
        row("Ingress", "ingresses")
            .short(&["ing"])
            .status()
            .generation()
            .columns(columns::ingress())
            .defaults(defaults::network::ingress)
            .prepare(strategy::network::create_ingress, keep_status)
            .validate(network::ingress, |_, _, _| ())
            .validate_create(network::new_ingress)
            .validate_status(network::ingress_status)
            .warnings(strategy::deprecations::ingress),
        row("IPAddress", "ipaddresses")
            .cluster()
            .short(&["ip"])
            .names(NameRule::Ip)
            .columns(columns::ip_address())
            .validate(network::ip_address, network::ip_address_update),
        row("NetworkPolicy", "networkpolicies")
            .short(&["netpol"])
            .generation()
            .columns(columns::network_policy())
            .defaults(defaults::network::network_policy)
            .validate(network::network_policy, network::network_policy_update)
            .validate_create(network::new_network_policy)
            .warnings(strategy::deprecations::network_policy),
        row("ServiceCIDR", "servicecidrs")
            .cluster()
            .status_only()
            .columns(columns::service_cidr())
            .validate(network::service_cidr, network::service_cidr_update)
            .validate_create(network::new_service_cidr),
    ]
}
