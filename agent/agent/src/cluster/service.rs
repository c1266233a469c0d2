//! Services, in a few hundred bytes each.

use coracle_cni::route::Cidr;
use coracle_fields::core::v1;
use coracle_fields::{FromField, Text, fields};
use k8s_openapi::NamespaceResourceScope;
use serde::Deserialize;
use std::net::IpAddr;

use super::reflector::FromWire;
use super::wire::SlimMeta;

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number in IP.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// As the API writes it.
    pub fn text(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Its name, empty for the only one.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number on cluster addresses.
    pub port: u16,
    /// Its number on nodes, 0 for none.
    pub node_port: u16,
}

/// What only services that are reached from outside have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct External {
    /// `externalIPs`.
    pub ips: Box<[IpAddr]>,
    /// Addresses of its load balancer that nodes answer on.
    pub balancer: Box<[IpAddr]>,
    /// `loadBalancerSourceRanges`; empty for all.
    pub sources: Box<[Cidr]>,
    /// Outside traffic stays on the node it came to.
    pub local: bool,
    /// Where nodes say whether they have endpoints, 0 for nowhere.
    pub health_port: u16,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Cluster addresses, the primary first; none for headless and external ones.
    pub ips: Box<[IpAddr]>,
    /// `clusterIP: None`.
    pub headless: bool,
    /// The name it stands for, with type ExternalName.
    pub external_name: Option<Box<str>>,
    /// Its ports.
    pub ports: Box<[Port]>,
    /// How long a client stays with its endpoint, in seconds.
    pub affinity: Option<u32>,
    /// Traffic from inside stays on its node.
    pub internal_local: bool,
    /// `PreferClose`, `PreferSameNode`, …
    pub distribution: Option<Box<str>>,
    /// Endpoints are published before they are ready.
    pub not_ready: bool,
    /// Handled by another proxy (`service-proxy-name` label).
    pub foreign: bool,
    /// The way in from outside.
    pub external: Option<Box<External>>,
}

impl FromField<Text> for Protocol {}

fields! {
    /// A Service as it is read.
    #[derive(Clone, Debug)]
    pub struct WireService: v1::Service {
        metadata: SlimMeta,
        spec: WireSpec,
        status: WireStatus,
    }

    #[derive(Clone, Debug)]
    struct WireSpec: v1::ServiceSpec {
        type_: String,
        cluster_ip: String,
        cluster_ips: Vec<String>,
        external_name: String,
        ports: Vec<WirePort>,
        session_affinity: String,
        session_affinity_config: Option<WireAffinity>,
        internal_traffic_policy: String,
        external_traffic_policy: String,
        traffic_distribution: Option<Box<str>>,
        publish_not_ready_addresses: bool,
        external_ips: Vec<String>,
        load_balancer_source_ranges: Vec<String>,
        health_check_node_port: u16,
    }

    #[derive(Clone, Debug)]
    struct WirePort: v1::ServicePort {
        name: Box<str>,
        protocol: Protocol,
        port: u16,
        node_port: u16,
    }

    #[derive(Clone, Debug)]
    struct WireAffinity: v1::SessionAffinityConfig {
        client_ip: Option<WireClient>,
    }

    #[derive(Clone, Debug)]
    struct WireClient: v1::ClientIPConfig {
        timeout_seconds: Option<u32>,
    }

    #[derive(Clone, Debug)]
    struct WireStatus: v1::ServiceStatus {
        load_balancer: WireBalancer,
    }

    #[derive(Clone, Debug)]
    struct WireBalancer: v1::LoadBalancerStatus {
        ingress: Vec<WireIngress>,
    }

    #[derive(Clone, Debug)]
    struct WireIngress: v1::LoadBalancerIngress {
        ip: String,
        ip_mode: Option<String>,
    }
}

crate::wire_kind!(WireService, NamespaceResourceScope, "", "v1", "Service", "services");

const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// How long a client stays with its endpoint when nothing else is said.
const AFFINITY: u32 = 10_800;

impl FromWire for Service {
    type Wire = WireService;

    fn from_wire(wire: WireService) -> Option<Self> {
        let WireService { metadata, spec, status } = wire;
        let ips = match spec.cluster_ips.is_empty() {
            true => parse([&spec.cluster_ip]),
            false => parse(&spec.cluster_ips),
        };
        let balanced = spec.type_ == "LoadBalancer";
        let outside = balanced || spec.type_ == "NodePort";
        let ingress = status.load_balancer.ingress.iter();
        let ingress = ingress.filter(|i| balanced && i.ip_mode.as_deref() != Some("Proxy")).map(|i| &i.ip);
        let external = External {
            ips: parse(&spec.external_ips),
            balancer: parse(ingress),
            sources: spec.load_balancer_source_ranges.iter().filter_map(|r| r.trim().parse().ok()).collect(),
            local: spec.external_traffic_policy == "Local",
            health_port: spec.health_check_node_port,
        };
        let reached = outside || !external.ips.is_empty();
        let timeout = spec.session_affinity_config.and_then(|c| c.client_ip).and_then(|c| c.timeout_seconds);
        let ports = spec.ports.into_iter().map(|port| Port {
            name: port.name,
            protocol: port.protocol,
            port: port.port,
            node_port: if outside { port.node_port } else { 0 },
        });
        Some(Service {
            ips,
            headless: spec.cluster_ip == "None",
            external_name: (spec.type_ == "ExternalName").then(|| spec.external_name.into()),
            ports: ports.collect(),
            affinity: (spec.session_affinity == "ClientIP").then(|| timeout.unwrap_or(AFFINITY)),
            internal_local: spec.internal_traffic_policy == "Local",
            distribution: spec.traffic_distribution,
            not_ready: spec.publish_not_ready_addresses,
            foreign: metadata.0.labels.is_some_and(|labels| labels.contains_key(PROXY_NAME)),
            external: reached.then(|| Box::new(external)),
        })
    }
}

fn parse<'a>(texts: impl IntoIterator<Item = &'a String>) -> Box<[IpAddr]> {
    texts.into_iter().filter_map(|text| coracle_proto::names::sloppy_address(text)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn keep(value: serde_json::Value) -> Service {
        Service::from_wire(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn what_is_kept_of_a_service() {
        let service = keep(json!({
            "metadata": {"name": "web", "namespace": "a", "managedFields": [{"x": 1}]},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"],
                "ports": [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": "web", "protocol": "TCP"},
                          {"name": "dns", "port": 53, "protocol": "UDP"}],
                "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
                "loadBalancerSourceRanges": ["192.0.2.0/24"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "ipMode": "Proxy"},
                {"hostname": "x"}]}}}));
        assert_eq!(service.ips.len(), 2);
        assert_eq!(service.affinity, Some(AFFINITY));
        assert_eq!((service.ports[0].node_port, service.ports[1].protocol), (30080, Protocol::Udp));
        let external = service.external.unwrap();
        assert_eq!(*external.balancer, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(external.local && external.health_port == 31000 && external.sources.len() == 1);
    }

    #[test]
    fn headless_and_external_names_have_no_address() {
        let service = keep(json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": null}}));
        assert!(service.headless && service.ips.is_empty() && service.external.is_none());
        let service = keep(
            json!({"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "x.test"}}),
        );
        assert_eq!(service.external_name.as_deref(), Some("x.test"));
    }
}
