//! What NetworkPolicies have against a connection.

use super::policy::{Direction, Peer, Port, Verdict, judge};
use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::Pod;
use std::net::IpAddr;

/// A pod as the other end of a connection: those on the node's network have the node's address.
pub(super) fn peer(pod: View<'_, Pod>) -> Peer<'_> {
    let address = pod.status().host_ip().text().parse::<IpAddr>();
    match address {
        Ok(address) if pod.spec().host_network().flag() => Peer::Address(address),
        _ => Peer::Pod(pod),
    }
}

/// What the policies of both ends have against a connection. `called` is the destination in sentences.
pub(super) fn policies(
    world: &World,
    from: View<'_, Pod>,
    to: View<'_, Pod>,
    called: &str,
    port: Port<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Policies do not apply to pods on the node's network.
    if !from.spec().host_network().flag() {
        let verdict = judge(world, from, Direction::Egress, peer(to), port, Some(to));
        findings.extend(denied(from, Direction::Egress, called, port, verdict));
    }
    if !to.spec().host_network().flag() {
        let verdict = judge(world, to, Direction::Ingress, peer(from), port, Some(to));
        findings.extend(denied(to, Direction::Ingress, from.metadata().name().text(), port, verdict));
    }
    findings
}

/// The finding of a verdict against a connection.
pub(super) fn denied(
    pod: View<'_, Pod>,
    direction: Direction,
    other: &str,
    port: Port<'_>,
    verdict: Verdict,
) -> Option<Finding> {
    let Verdict::Denied(all) = verdict else { return None };
    let names: Vec<&str> = all.iter().map(|(policy, _)| policy.name.as_str()).collect();
    let names = names.join(", ");
    let namespace = pod.metadata().namespace().text();
    let Port { number, protocol } = port;
    let (trouble, cause, remedy) = match direction {
        Direction::Egress => (
            Trouble::PolicyBlocksEgress,
            format!(
                "NetworkPolicy {names} does not allow the pod to connect to {other} on port {number}/{protocol}"
            ),
            "egress",
        ),
        Direction::Ingress => (
            Trouble::PolicyBlocksIngress,
            format!(
                "NetworkPolicy {names} does not allow {other} to connect to port {number}/{protocol} of the pod"
            ),
            "ingress",
        ),
    };
    let mut finding = Finding::new(ObjectRef::to(pod), trouble, cause);
    for (policy, reason) in &all {
        finding = finding.evidence(policy.to_string(), reason.as_str());
    }
    Some(finding.remedy(format!(
        "add a rule to spec.{remedy} of one of the policies: kubectl edit networkpolicy -n {namespace}"
    )))
}
