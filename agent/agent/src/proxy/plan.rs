//! Desired translations of a Service. Pure.

use coracle_cni::route::Cidr;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub use super::pick::Target;
use super::pick::{self, NodeTopology};
use crate::cluster::{Name, Port, Protocol, Service, Slice};

/// Verdict on connections without endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Empty {
    /// Refused at once: there is no endpoint anywhere.
    Refuse,
    /// Dropped: there are endpoints, only not on this node.
    Drop,
}

/// Endpoints that connections are spread over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The same for the same port of the same service, before and after a change.
    pub id: u64,
    /// The protocol of its port.
    pub protocol: Protocol,
    /// Where connections go.
    pub targets: Vec<Target>,
    /// How long a client stays with its target, in seconds.
    pub affinity: Option<u32>,
    /// What becomes of connections without targets.
    pub empty: Empty,
}

/// What a packet is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// An address and port of the service.
    Address {
        /// Only packets from outside the node.
        outside: bool,
        /// Destination.
        ip: IpAddr,
        /// Protocol.
        protocol: Protocol,
        /// Port.
        port: u16,
    },
    /// A port of the node, on all its addresses.
    Node {
        /// Only packets from outside the node.
        outside: bool,
        /// IPv4, or IPv6.
        v4: bool,
        /// Protocol.
        protocol: Protocol,
        /// Port.
        port: u16,
    },
    /// A cluster address, whatever the port: what no other entry takes is refused.
    Cluster(IpAddr),
}

/// Maps packets to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which packets.
    pub key: Key,
    /// Which of the plan's groups.
    pub group: usize,
    /// Allowed source ranges; empty for all.
    pub sources: Box<[Cidr]>,
}

/// A service's part of the kernel's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Groups of endpoints.
    pub groups: Vec<Group>,
    /// Ways to them; those for `Key::Cluster` have no group of their own.
    pub entries: Vec<Entry>,
    /// Endpoints on this node, which may be led to themselves.
    pub local: BTreeSet<IpAddr>,
    /// Where the node tells whether it has endpoints, and how many.
    pub health: Option<(u16, usize)>,
}

/// The plan for a service; empty for those that have no address.
pub fn plan_service(name: &Name, service: &Service, slices: &[&Slice], place: &NodeTopology<'_>) -> Plan {
    let mut plan = Plan::default();
    if service.headless || service.external_name.is_some() || service.foreign || service.ips.is_empty() {
        return plan;
    }
    let external = service.external.as_deref();
    for v4 in [true, false] {
        if !service.ips.iter().any(|ip| ip.is_ipv4() == v4) {
            continue;
        }
        for port in &service.ports {
            plan_port(&mut plan, name, service, port, slices, place, v4);
        }
    }
    let served_here = |ip: &IpAddr| !place.answers_itself.contains(ip);
    for ip in service.ips.iter().filter(|ip| served_here(ip)) {
        plan.entries.push(Entry { key: Key::Cluster(*ip), group: usize::MAX, sources: Box::default() });
    }
    if let Some(external) = external.filter(|external| external.local && external.health_port != 0) {
        let here = slices.iter().flat_map(|slice| slice.endpoints.iter());
        let here = here.filter(|endpoint| endpoint.ready && endpoint.node.as_deref() == Some(place.node));
        plan.health = Some((external.health_port, here.map(|e| e.ip).collect::<BTreeSet<_>>().len()));
    }
    plan
}

fn plan_port(
    plan: &mut Plan,
    name: &Name,
    service: &Service,
    port: &Port,
    slices: &[&Slice],
    place: &NodeTopology<'_>,
    v4: bool,
) {
    let picked = pick::pick(port, slices, place, v4);
    plan.local.extend(picked.local.iter().map(|target| target.ip));
    let mut group = |scope: &str, targets: &[Target], empty: Empty| {
        plan.groups.push(Group {
            id: id(name, port, scope, v4),
            protocol: port.protocol,
            targets: targets.to_vec(),
            affinity: service.affinity,
            empty,
        });
        plan.groups.len() - 1
    };
    let external = service.external.as_deref();
    let needs_local = service.internal_local || external.is_some_and(|external| external.local);
    let cluster = group("cluster", &picked.cluster, Empty::Refuse);
    let empty = if picked.any { Empty::Drop } else { Empty::Refuse };
    let local = if needs_local { group("local", &picked.local, empty) } else { cluster };

    let protocol = port.protocol;
    let mut add = |key: Key, group: usize, sources: &[Cidr]| {
        plan.entries.push(Entry { key, group, sources: sources.into() });
    };
    let address = |outside: bool, ip: IpAddr| Key::Address { outside, ip, protocol, port: port.port };
    let family = |ip: &&IpAddr| ip.is_ipv4() == v4;
    let inside = if service.internal_local { local } else { cluster };
    for ip in service.ips.iter().filter(family) {
        // The node's own DNS answers on its address unless the service really has endpoints.
        if picked.any || !place.answers_itself.contains(ip) {
            add(address(false, *ip), inside, &[]);
        }
    }
    let Some(external) = external else { return };
    let open: &[Cidr] = &[];
    let reached = external.ips.iter().map(|ip| (ip, open));
    let reached = reached.chain(external.balancer.iter().map(|ip| (ip, &*external.sources)));
    for (ip, sources) in reached.filter(|(ip, _)| ip.is_ipv4() == v4) {
        add(address(false, *ip), cluster, sources);
        if external.local {
            add(address(true, *ip), local, sources);
        }
    }
    if port.node_port != 0 {
        let node = |outside: bool| Key::Node { outside, v4, protocol, port: port.node_port };
        add(node(false), cluster, &[]);
        if external.local {
            add(node(true), local, &[]);
        }
    }
}

/// FNV-1a over what names a group.
fn id(name: &Name, port: &Port, scope: &str, v4: bool) -> u64 {
    let parts = [&*name.namespace, &*name.name, &*port.name, port.protocol.text(), scope];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    for byte in bytes.chain(port.port.to_be_bytes()).chain([u8::from(v4)]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
