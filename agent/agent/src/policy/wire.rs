//! Policies and pods as they are read from the API.

use coracle_cni::route::Cidr;
use coracle_fields::core::v1 as core_v1;
use coracle_fields::fields;
use coracle_fields::networking::v1;
use k8s_openapi::NamespaceResourceScope;
use serde_json::Value;

use super::model::{NamedPort, Peer, Pod, Policy, PortMatch, PortRule, Rule, Selector};
use crate::cluster::wire::SlimMeta;
use crate::cluster::{FromWire, Protocol};

fields! {
    /// A NetworkPolicy as it is read.
    #[derive(Clone, Debug)]
    pub struct WirePolicy: v1::NetworkPolicy {
        metadata: SlimMeta,
        spec: WireSpec,
    }

    #[derive(Clone, Debug)]
    struct WireSpec: v1::NetworkPolicySpec {
        /// Null reads as "cannot be read".
        pod_selector: Value,
        policy_types: Vec<String>,
        ingress: Vec<WireIngress>,
        egress: Vec<WireEgress>,
    }

    #[derive(Clone, Debug)]
    struct WireIngress: v1::NetworkPolicyIngressRule {
        from: Vec<WirePeer>,
        ports: Vec<WirePort>,
    }

    #[derive(Clone, Debug)]
    struct WireEgress: v1::NetworkPolicyEgressRule {
        to: Vec<WirePeer>,
        ports: Vec<WirePort>,
    }

    #[derive(Clone, Debug)]
    struct WirePeer: v1::NetworkPolicyPeer {
        pod_selector: Option<Value>,
        namespace_selector: Option<Value>,
        ip_block: Option<WireBlock>,
    }

    #[derive(Clone, Debug)]
    struct WireBlock: v1::IPBlock {
        cidr: String,
        except: Vec<String>,
    }

    #[derive(Clone, Debug)]
    struct WirePort: v1::NetworkPolicyPort {
        protocol: Protocol,
        port: Option<Value>,
        end_port: Option<u16>,
    }
}

crate::wire_kind!(
    WirePolicy,
    NamespaceResourceScope,
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies"
);

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
        let ingress = spec.ingress.into_iter().filter_map(|of| rule(of.from, of.ports));
        let egress = spec.egress.into_iter().filter_map(|of| rule(of.to, of.ports));
        Some(Policy {
            // A selector that cannot be read selects everything: rather too little traffic than too much.
            pods: Selector::new(&spec.pod_selector).unwrap_or_else(Selector::everything),
            ingress: comes.then(|| ingress.collect()),
            egress: goes.then(|| egress.collect()),
        })
    }
}

/// A rule; `None` when it has peers or ports and none of them can be read: it must not come to mean everybody.
fn rule(peers: Vec<WirePeer>, ports: Vec<WirePort>) -> Option<Rule> {
    let (all_peers, all_ports) = (peers.is_empty(), ports.is_empty());
    let peers: Box<[Peer]> = peers.into_iter().filter_map(peer).collect();
    let ports: Box<[PortRule]> = ports.into_iter().filter_map(port).collect();
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

fields! {
    /// A Pod as it is read.
    #[derive(Clone, Debug)]
    pub struct WirePod: core_v1::Pod {
        metadata: SlimMeta,
        spec: WirePodSpec,
        status: WireStatus,
    }

    #[derive(Clone, Debug)]
    struct WirePodSpec: core_v1::PodSpec {
        host_network: bool,
        node_name: Box<str>,
        containers: Vec<WireContainer>,
        init_containers: Vec<WireContainer>,
    }

    #[derive(Clone, Debug)]
    struct WireContainer: core_v1::Container {
        ports: Vec<WireContainerPort>,
    }

    #[derive(Clone, Debug)]
    struct WireContainerPort: core_v1::ContainerPort {
        name: Box<str>,
        protocol: Protocol,
        container_port: u16,
    }

    #[derive(Clone, Debug)]
    struct WireStatus: core_v1::PodStatus {
        phase: String,
        pod_ip: String,
        pod_ips: Vec<WireIp>,
    }

    #[derive(Clone, Debug)]
    struct WireIp: core_v1::PodIP {
        ip: String,
    }
}

crate::wire_kind!(WirePod, NamespaceResourceScope, "", "v1", "Pod", "pods");

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
            labels: wire.metadata.0.labels.unwrap_or_default(),
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
