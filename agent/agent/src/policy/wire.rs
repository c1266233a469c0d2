//! Policies and pods as they are read from the API.

use coracle_cni::route::Cidr;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::model::{NamedPort, Peer, Pod, Policy, PortMatch, PortRule, Rule, Selector};
use crate::cluster::wire::{or_default, slim_meta};
use crate::cluster::{FromWire, Protocol};

/// A NetworkPolicy as it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct WirePolicy {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
}

crate::wire_kind!(
    WirePolicy,
    NamespaceResourceScope,
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies"
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    /// Null reads as "cannot be read".
    pod_selector: Value,
    #[serde(deserialize_with = "or_default")]
    policy_types: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    ingress: Vec<WireRule>,
    #[serde(deserialize_with = "or_default")]
    egress: Vec<WireRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireRule {
    #[serde(alias = "to", deserialize_with = "or_default")]
    from: Vec<WirePeer>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<WirePort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePeer {
    pod_selector: Option<Value>,
    namespace_selector: Option<Value>,
    ip_block: Option<WireBlock>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireBlock {
    cidr: String,
    #[serde(deserialize_with = "or_default")]
    except: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    #[serde(deserialize_with = "or_default")]
    protocol: Protocol,
    port: Option<Value>,
    end_port: Option<u16>,
}

impl FromWire for Policy {
    type Wire = WirePolicy;

    fn from_wire(wire: WirePolicy) -> Option<Self> {
        let spec = wire.spec;
        // The server fills the types in; without them a policy is about what comes in, and out if it has such rules.
        let about = |kind: &str, default: bool| match spec.policy_types.is_empty() {
            true => default,
            false => spec.policy_types.iter().any(|of| of == kind),
        };
        let (comes, goes) = (about("Ingress", true), about("Egress", !spec.egress.is_empty()));
        let rules = |rules: Vec<WireRule>| rules.into_iter().filter_map(rule).collect();
        Some(Policy {
            // A selector that cannot be read selects everything: rather too little traffic than too much.
            pods: Selector::new(&spec.pod_selector).unwrap_or_else(Selector::everything),
            ingress: comes.then(|| rules(spec.ingress)),
            egress: goes.then(|| rules(spec.egress)),
        })
    }
}

/// A rule; `None` when it has peers or ports and none of them can be read: it must not come to mean everybody.
fn rule(wire: WireRule) -> Option<Rule> {
    let (all_peers, all_ports) = (wire.from.is_empty(), wire.ports.is_empty());
    let peers: Box<[Peer]> = wire.from.into_iter().filter_map(peer).collect();
    let ports: Box<[PortRule]> = wire.ports.into_iter().filter_map(port).collect();
    let lost = (peers.is_empty() && !all_peers) || (ports.is_empty() && !all_ports);
    (!lost).then_some(Rule { peers, ports })
}

fn peer(wire: WirePeer) -> Option<Peer> {
    if let Some(block) = wire.ip_block {
        let except: Result<_, _> = block.except.iter().map(|text| text.parse::<Cidr>()).collect();
        return Some(Peer::Block { cidr: block.cidr.parse().ok()?, except: except.ok()? });
    }
    let selector = |value: Option<Value>| match value {
        None => Some(None),
        Some(value) => Selector::new(&value).map(Some),
    };
    let (namespaces, pods) = (selector(wire.namespace_selector)?, selector(wire.pod_selector)?);
    (namespaces.is_some() || pods.is_some()).then_some(Peer::Pods { namespaces, pods })
}

fn port(wire: WirePort) -> Option<PortRule> {
    let port = match wire.port {
        None => PortMatch::Any,
        Some(Value::String(name)) => PortMatch::Named(name.into()),
        Some(number) => {
            let first = u16::try_from(number.as_u64()?).ok()?;
            PortMatch::Range(first, wire.end_port.unwrap_or(first))
        }
    };
    Some(PortRule { protocol: wire.protocol, port })
}

/// A Pod as it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct WirePod {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WirePodSpec,
    #[serde(default, deserialize_with = "or_default")]
    status: WireStatus,
}

crate::wire_kind!(WirePod, NamespaceResourceScope, "", "v1", "Pod", "pods");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodSpec {
    #[serde(deserialize_with = "or_default")]
    host_network: bool,
    #[serde(deserialize_with = "or_default")]
    node_name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<WireContainer>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<WireContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireContainer {
    #[serde(deserialize_with = "or_default")]
    ports: Vec<WireContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainerPort {
    #[serde(deserialize_with = "or_default")]
    name: Box<str>,
    #[serde(deserialize_with = "or_default")]
    protocol: Protocol,
    container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pod_ips: Vec<WireIp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireIp {
    ip: String,
}

impl FromWire for Pod {
    type Wire = WirePod;

    fn from_wire(wire: WirePod) -> Option<Self> {
        // A pod on the host's network has the node's address; one that has ended has none that is still its own.
        if wire.spec.host_network || matches!(wire.status.phase.as_str(), "Succeeded" | "Failed") {
            return None;
        }
        let mut ips: Vec<String> = wire.status.pod_ips.into_iter().map(|ip| ip.ip).collect();
        if ips.is_empty() {
            ips.push(wire.status.pod_ip);
        }
        let containers = wire.spec.containers.into_iter().chain(wire.spec.init_containers);
        let ports = containers.flat_map(|container| container.ports).filter(|port| !port.name.is_empty());
        Some(Pod {
            labels: wire.metadata.labels.unwrap_or_default(),
            node: wire.spec.node_name,
            ips: ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
            ports: ports
                .map(|port| NamedPort {
                    name: port.name,
                    protocol: port.protocol,
                    number: port.container_port,
                })
                .collect(),
        })
    }
}
