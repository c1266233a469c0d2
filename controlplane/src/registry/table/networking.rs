//! Ingresses, network policies and service addresses.

use crate::registry::kinds::{Kind, NameRule, keep_status};
use crate::registry::{columns, defaults, strategy};

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
            .defaults(defaults::network::ingress_class),
        row("Ingress", "ingresses")
            .short(&["ing"])
            .status()
            .generation()
            .columns(columns::ingress())
            .defaults(defaults::network::ingress)
            .prepare(strategy::network::create_ingress, keep_status),
        row("IPAddress", "ipaddresses")
            .cluster()
            .short(&["ip"])
            .names(NameRule::Ip)
            .columns(columns::ip_address()),
        row("NetworkPolicy", "networkpolicies")
            .short(&["netpol"])
            .generation()
            .columns(columns::network_policy())
            .defaults(defaults::network::network_policy),
        row("ServiceCIDR", "servicecidrs").cluster().status().columns(columns::service_cidr()),
    ]
}
