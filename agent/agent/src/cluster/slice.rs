//! Endpoints of services.

use coracle_fields::discovery::v1;
use coracle_fields::fields;
use k8s_openapi::NamespaceResourceScope;
use std::net::IpAddr;
use std::sync::Arc;

use super::name::Name;
use super::reflector::FromWire;
use super::service::Protocol;
use super::wire::SlimMeta;

const SERVICE: &str = "kubernetes.io/service-name";

/// A port that all endpoints of a slice have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlicePort {
    /// Name of the service's port.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The number there.
    pub port: u16,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Takes new connections.
    pub ready: bool,
    /// Still answers, perhaps while it ends.
    pub serving: bool,
    /// Is ending.
    pub terminating: bool,
    /// The node it is on.
    pub node: Option<Arc<str>>,
    /// Its name within the service.
    pub hostname: Option<Box<str>>,
    /// Zones that should use it; empty when nothing is said.
    pub zones: Box<[Box<str>]>,
    /// Nodes that should use it; empty when nothing is said.
    pub nodes: Box<[Box<str>]>,
}

/// A slice of the endpoints of a service, of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The service, in the slice's own namespace.
    pub service: Box<str>,
    /// Its ports.
    pub ports: Box<[SlicePort]>,
    /// Its endpoints.
    pub endpoints: Box<[Endpoint]>,
}

fields! {
    /// An EndpointSlice as it is read.
    #[derive(Clone, Debug)]
    pub struct WireSlice: v1::EndpointSlice {
        metadata: SlimMeta,
        ports: Vec<WirePort>,
        endpoints: Vec<WireEndpoint>,
    }

    #[derive(Clone, Debug)]
    struct WirePort: v1::EndpointPort {
        name: Box<str>,
        protocol: Protocol,
        port: Option<u16>,
    }

    #[derive(Clone, Debug)]
    struct WireEndpoint: v1::Endpoint {
        addresses: Vec<String>,
        conditions: WireConditions,
        node_name: Option<Arc<str>>,
        hostname: Option<Box<str>>,
        hints: WireHints,
    }

    #[derive(Clone, Debug)]
    struct WireConditions: v1::EndpointConditions {
        ready: Option<bool>,
        serving: Option<bool>,
        terminating: Option<bool>,
    }

    #[derive(Clone, Debug)]
    struct WireHints: v1::EndpointHints {
        for_zones: Vec<WireZone>,
        for_nodes: Vec<WireNode>,
    }

    #[derive(Clone, Debug)]
    struct WireZone: v1::ForZone {
        name: Box<str>,
    }

    #[derive(Clone, Debug)]
    struct WireNode: v1::ForNode {
        name: Box<str>,
    }
}

crate::wire_kind!(
    WireSlice,
    NamespaceResourceScope,
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices"
);

impl FromWire for Slice {
    type Wire = WireSlice;

    fn from_wire(wire: WireSlice) -> Option<Self> {
        let service = wire.metadata.0.labels.as_ref()?.get(SERVICE)?.as_str().into();
        let ports = wire.ports.into_iter().filter_map(|port| {
            Some(SlicePort { name: port.name, protocol: port.protocol, port: port.port? })
        });
        let endpoints = wire.endpoints.into_iter().filter_map(|endpoint| {
            let conditions = endpoint.conditions;
            let ready = conditions.ready.unwrap_or(true);
            Some(Endpoint {
                // More than one address was never given a meaning.
                ip: endpoint.addresses.first()?.parse().ok()?,
                ready,
                serving: conditions.serving.unwrap_or(ready),
                terminating: conditions.terminating.unwrap_or(false),
                node: endpoint.node_name,
                hostname: endpoint.hostname,
                zones: endpoint.hints.for_zones.into_iter().map(|zone| zone.name).collect(),
                nodes: endpoint.hints.for_nodes.into_iter().map(|node| node.name).collect(),
            })
        });
        Some(Slice { service, ports: ports.collect(), endpoints: endpoints.collect() })
    }

    fn group(&self, own: &Name) -> Name {
        Name { namespace: own.namespace.clone(), name: (&*self.service).into() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_conditions_are_ready() {
        let wire = json!({"metadata": {"name": "s", "namespace": "a", "labels": {SERVICE: "web"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}, {"name": "none", "port": null}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "nodeName": "n1", "hints": {"forZones": [{"name": "z"}]}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["not an address"]}]});
        let slice = Slice::from_wire(serde_json::from_value(wire).unwrap()).unwrap();
        assert_eq!(slice.ports.len(), 1);
        let [first, second] = &*slice.endpoints else { panic!("{slice:?}") };
        assert!(first.ready && first.serving && !first.terminating && &*first.zones[0] == "z");
        assert!(!second.ready && second.serving && second.terminating);
        assert_eq!(slice.group(&Name::new("a", "s")), Name::new("a", "web"));
    }
}
