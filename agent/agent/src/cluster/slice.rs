//! Endpoints of services.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

use super::name::Name;
use super::reflector::FromWire;
use super::service::Protocol;
use super::wire::{or_default, slim_meta};

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

/// An EndpointSlice as it is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireSlice {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    ports: Vec<WirePort>,
    #[serde(default, deserialize_with = "or_default")]
    endpoints: Vec<WireEndpoint>,
}

crate::wire_kind!(
    WireSlice,
    NamespaceResourceScope,
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePort {
    #[serde(deserialize_with = "or_default")]
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    protocol: Protocol,
    port: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEndpoint {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: WireConditions,
    node_name: Option<Arc<str>>,
    hostname: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    hints: WireHints,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireHints {
    #[serde(deserialize_with = "or_default")]
    for_zones: Vec<WireHint>,
    #[serde(deserialize_with = "or_default")]
    for_nodes: Vec<WireHint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireHint {
    name: Box<str>,
}

impl FromWire for Slice {
    type Wire = WireSlice;

    fn from_wire(wire: WireSlice) -> Option<Self> {
        let service = wire.metadata.labels.as_ref()?.get(SERVICE)?.as_str().into();
        let ports = wire.ports.into_iter().filter_map(|port| {
            Some(SlicePort { name: port.name, protocol: port.protocol, port: port.port? })
        });
        let endpoints = wire.endpoints.into_iter().filter_map(|endpoint| {
            let conditions = endpoint.conditions;
            let names = |hints: Vec<WireHint>| hints.into_iter().map(|hint| hint.name).collect();
            let ready = conditions.ready.unwrap_or(true);
            Some(Endpoint {
                // More than one address was never given a meaning.
                ip: endpoint.addresses.first()?.parse().ok()?,
                ready,
                serving: conditions.serving.unwrap_or(ready),
                terminating: conditions.terminating.unwrap_or(false),
                node: endpoint.node_name,
                hostname: endpoint.hostname,
                zones: names(endpoint.hints.for_zones),
                nodes: names(endpoint.hints.for_nodes),
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
