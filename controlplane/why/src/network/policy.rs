//! NetworkPolicies as they are defined: a pod that a policy selects for a direction allows what one of these policies allows.

use super::address::contains;
use crate::finding::ObjectRef;
use crate::select::{selector, selects, text_of};
use crate::world::World;
use coracle_fields::core::v1::{Namespace, Pod};
use coracle_fields::meta::LabelSelector;
use coracle_fields::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use coracle_fields::{List, View};
use std::net::IpAddr;

/// The direction of a connection, as seen by the pod that a policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Into the pod.
    Ingress,
    /// Out of the pod.
    Egress,
}

/// The other end of a connection.
#[derive(Clone, Copy)]
pub enum Peer<'a> {
    /// A pod.
    Pod(View<'a, Pod>),
    /// An address outside of the cluster.
    Address(IpAddr),
}

/// Port and protocol of the destination.
#[derive(Debug, Clone, Copy)]
pub struct Port<'a> {
    /// Number at the destination pod.
    pub number: i64,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'a str,
}

/// Ports and peers of a rule.
type Rule<'a> = (View<'a, List<NetworkPolicyPort>>, View<'a, List<NetworkPolicyPeer>>);

/// What the policies of a pod say about a connection.
pub enum Verdict {
    /// No policy selects the pod for this direction.
    Unrestricted,
    /// A policy allows it.
    Allowed(ObjectRef),
    /// These policies select the pod, and none allows it; each with its reason.
    Denied(Vec<(ObjectRef, String)>),
}

/// Whether the policies of a pod allow a connection. `target` is the pod whose named ports count: the destination.
pub fn judge(
    world: &World,
    pod: View<'_, Pod>,
    direction: Direction,
    peer: Peer<'_>,
    port: Port<'_>,
    target: Option<View<'_, Pod>>,
) -> Verdict {
    let namespace = pod.metadata().namespace().text();
    let policies = world.list::<NetworkPolicy>(Some(namespace)).items;
    let mut denied = Vec::new();
    for policy in policies.into_iter().filter(|policy| applies(*policy, pod, direction)) {
        match allows(world, policy, direction, peer, port, target) {
            None => return Verdict::Allowed(ObjectRef::to(policy)),
            Some(reason) => denied.push((ObjectRef::to(policy), reason)),
        }
    }
    if denied.is_empty() { Verdict::Unrestricted } else { Verdict::Denied(denied) }
}

/// Whether a policy selects a pod for a direction.
fn applies(policy: View<'_, NetworkPolicy>, pod: View<'_, Pod>, direction: Direction) -> bool {
    let spec = policy.spec();
    let typed = match direction {
        Direction::Ingress => spec.policy_types().is_empty() || spec.policy_types().has("Ingress"),
        Direction::Egress => {
            spec.policy_types().has("Egress") || (spec.policy_types().is_empty() && spec.egress().is_set())
        }
    };
    // A missing selector of a policy selects all pods.
    let chosen = !spec.pod_selector().is_set() || selects(&selector(spec.pod_selector()), pod.metadata());
    typed && chosen
}

/// Why a policy does not allow a connection; nothing when it does.
fn allows(
    world: &World,
    policy: View<'_, NetworkPolicy>,
    direction: Direction,
    peer: Peer<'_>,
    port: Port<'_>,
    target: Option<View<'_, Pod>>,
) -> Option<String> {
    let namespace = policy.metadata().namespace().text();
    let rules: Vec<Rule<'_>> = match direction {
        Direction::Ingress => {
            policy.spec().ingress().items().map(|rule| (rule.ports(), rule.from())).collect()
        }
        Direction::Egress => policy.spec().egress().items().map(|rule| (rule.ports(), rule.to())).collect(),
    };
    let (way, end) = match direction {
        Direction::Ingress => ("ingress", "from the source"),
        Direction::Egress => ("egress", "to the destination"),
    };
    if rules.is_empty() {
        return Some(format!("it has no {way} rule, so it allows nothing"));
    }
    let mut reasons = Vec::new();
    for (at, (ports, peers)) in rules.into_iter().enumerate() {
        let by_port = ports.is_empty() || ports.items().any(|rule| port_matches(rule, port, target));
        let by_peer =
            peers.is_empty() || peers.items().any(|rule| peer_matches(world, namespace, rule, peer));
        let number = format!("on port {}/{}", port.number, port.protocol);
        let lacks = match (by_port, by_peer) {
            (true, true) => return None,
            (true, false) => end.to_owned(),
            (false, true) => number,
            (false, false) => format!("{end} and not {number}"),
        };
        let allowed = summary(direction, ports, peers);
        reasons.push(format!("its {way} rule {} allows connections {allowed}, not {lacks}", at + 1));
    }
    Some(reasons.join("; "))
}

fn port_matches(rule: View<'_, NetworkPolicyPort>, port: Port<'_>, target: Option<View<'_, Pod>>) -> bool {
    if rule.protocol().or("TCP") != port.protocol {
        return false;
    }
    match (rule.port().int(), rule.port().text()) {
        (Some(first), _) => (first..=rule.end_port().or(first)).contains(&port.number),
        (None, "") => true,
        (None, name) => target.is_some_and(|pod| {
            let mut ports = pod.spec().containers().items().flat_map(|container| container.ports().items());
            ports.any(|each| {
                each.name() == name
                    && each.container_port() == port.number
                    && each.protocol().or("TCP") == port.protocol
            })
        }),
    }
}

fn peer_matches(world: &World, own: &str, rule: View<'_, NetworkPolicyPeer>, peer: Peer<'_>) -> bool {
    if rule.ip_block().is_set() {
        let block = rule.ip_block();
        let within = |address: IpAddr| {
            contains(block.cidr().text(), address)
                && !block.except().texts().any(|part| contains(part, address))
        };
        return match peer {
            Peer::Address(address) => within(address),
            // Whether blocks apply to pods depends on the network plugin; those that do compare the pod's address.
            Peer::Pod(pod) => pod.status().pod_ip().text().parse::<IpAddr>().is_ok_and(within),
        };
    }
    let Peer::Pod(pod) = peer else { return false };
    let namespace = pod.metadata().namespace().text();
    let in_namespace = if rule.namespace_selector().is_set() {
        let found = world.get::<Namespace>("", namespace).view();
        found.is_some_and(|found| selects(&selector(rule.namespace_selector()), found.metadata()))
    } else {
        namespace == own
    };
    in_namespace && (!rule.pod_selector().is_set() || selects(&selector(rule.pod_selector()), pod.metadata()))
}

/// What a rule lets through, in one line.
fn summary(
    direction: Direction,
    ports: View<'_, List<NetworkPolicyPort>>,
    peers: View<'_, List<NetworkPolicyPeer>>,
) -> String {
    let each_peer = peers.items().map(|peer| {
        let (pods, spaces) = (peer.pod_selector(), peer.namespace_selector());
        let mut parts = Vec::new();
        if let Some(block) = peer.ip_block().cidr().filled() {
            parts.push(block.to_owned());
        }
        if pods.is_set() {
            parts.push(chosen("pods", pods));
        }
        if spaces.is_set() {
            parts.push(chosen("namespaces", spaces));
        }
        parts.join(" in ")
    });
    let each_peer: Vec<String> = each_peer.collect();
    let each_port = ports.items().map(|port| {
        let name =
            port.port().int().map_or_else(|| port.port().text().to_owned(), |number| number.to_string());
        let end = port.end_port().int().map_or_else(String::new, |end| format!("-{end}"));
        format!("{name}{end}/{}", port.protocol().or("TCP"))
    });
    let each_port: Vec<String> = each_port.collect();
    let who = if each_peer.is_empty() { "anyone".to_owned() } else { each_peer.join(" or ") };
    let on =
        if each_port.is_empty() { "any port".to_owned() } else { format!("port {}", each_port.join(", ")) };
    match direction {
        Direction::Ingress => format!("from {who} on {on}"),
        Direction::Egress => format!("to {who} on {on}"),
    }
}

/// What a selector selects, such as `pods app=web`.
fn chosen(what: &str, field: View<'_, LabelSelector>) -> String {
    match (text_of(field.match_labels()), field.match_expressions().is_empty()) {
        (labels, true) if labels.is_empty() => format!("all {what}"),
        (labels, false) if labels.is_empty() => format!("{what} of its matchExpressions"),
        (labels, true) => format!("{what} {labels}"),
        (labels, false) => format!("{what} {labels} of its matchExpressions"),
    }
}
