//! Ingresses, network policies and service addresses.

use crate::registry::kinds::{Kind, NameRule};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("networking.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("IngressClass", "ingressclasses").cluster().generation(),
        row("Ingress", "ingresses").short(&["ing"]).status().generation(),
        row("IPAddress", "ipaddresses").cluster().short(&["ip"]).names(NameRule::Ip),
        row("NetworkPolicy", "networkpolicies").short(&["netpol"]).generation(),
        row("ServiceCIDR", "servicecidrs").cluster().status(),
    ]
}
