//! Why one pod cannot connect to another: name, Service, port, policies, and the state of the destination.

use super::policy::{Direction, Peer, Port, Verdict, judge, summary};
use crate::dns_names::{Name, resolve};
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::pod::is_ready;
use crate::services::{selected, unknown_port};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::core::v1::{Pod, Service, ServicePort};
use coracle_fields::networking::v1::NetworkPolicy;
use coracle_fields::{Made, View, make};
use std::net::IpAddr;

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A Service by namespace and name.
    Service(String, String),
    /// A pod by namespace and name.
    Pod(String, String),
    /// A DNS name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A connection to be explained.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Namespace and name of the pod that connects.
    pub from: (String, String),
    /// Where to.
    pub to: Target,
    /// The port, when one was given.
    pub port: Option<i64>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Why a connection does not work.
pub fn explain(world: &World, connection: &Connection) -> Vec<Finding> {
    let (namespace, name) = (&connection.from.0, &connection.from.1);
    let Some(from) = world.get::<Pod>(namespace, name).view() else { return Vec::new() };
    let source = ObjectRef::to(from);
    match &connection.to {
        Target::Service(namespace, name) => match world.get::<Service>(namespace, name).view() {
            Some(service) => to_service(world, connection, from, service),
            None => Vec::new(),
        },
        Target::Pod(namespace, name) => match world.get::<Pod>(namespace, name).view() {
            Some(pod) => to_pod(world, connection, from, pod),
            None => Vec::new(),
        },
        Target::Name(name) => match resolve(world, namespace, name) {
            Name::Service(service) => {
                let mut findings: Vec<Finding> = dns(world, from).into_iter().collect();
                findings.extend(to_service(world, connection, from, service));
                findings
            }
            Name::Unknown(reason, meant) => {
                let remedy =
                    meant.map_or_else(|| "correct the name".to_owned(), |meant| format!("use {meant}"));
                let cause = format!("the name {name} does not exist in the cluster: {reason}");
                vec![
                    Finding::new(source, Trouble::DnsNameUnknown, cause)
                        .evidence("name", name)
                        .remedy(remedy),
                ]
            }
            Name::Other => Vec::new(),
        },
        Target::Address(address) => outside(world, connection, from, *address).into_iter().collect(),
    }
}

fn to_service(
    world: &World,
    connection: &Connection,
    from: View<'_, Pod>,
    service: View<'_, Service>,
) -> Vec<Finding> {
    let object = ObjectRef::to(service);
    let ports: Vec<View<'_, ServicePort>> = service.spec().ports().items().collect();
    let wanted = |port: &&View<'_, ServicePort>| {
        connection.port.is_none_or(|number| port.port() == number)
            && port.protocol().or("TCP") == connection.protocol
    };
    let Some(port) = ports.iter().find(wanted).copied() else {
        return vec![no_port(object, connection, &ports)];
    };
    let Some(pods) = selected(world, service).filter(|pods| !pods.is_empty()) else {
        return follow(world, &[], object);
    };
    if let Some(finding) =
        unknown_port(service, port, &pods).filter(|found| found.trouble == Trouble::ServiceTargetPortName)
    {
        return vec![finding];
    }
    let ready: Vec<View<'_, Pod>> = pods.iter().copied().filter(|pod| is_ready(*pod)).collect();
    let chosen = if ready.is_empty() { &pods } else { &ready };
    let blocked: Vec<Vec<Finding>> = chosen
        .iter()
        .map(|pod| {
            policies(
                world,
                from,
                *pod,
                Port { number: target_port(port, *pod), protocol: &connection.protocol },
            )
        })
        .collect();
    // Connections are spread over the pods: one that is blocked already makes some of them fail.
    let mut findings: Vec<Finding> = blocked.into_iter().flatten().collect();
    findings.extend(
        follow(world, &[], object)
            .into_iter()
            .filter(|finding| ready.is_empty() || finding.trouble != Trouble::ServiceNotReady),
    );
    findings
}

fn no_port(object: ObjectRef, connection: &Connection, ports: &[View<'_, ServicePort>]) -> Finding {
    let has: Vec<String> =
        ports.iter().map(|port| format!("{}/{}", port.port().or(0), port.protocol().or("TCP"))).collect();
    let number = connection.port.map_or_else(|| "any".to_owned(), |number| number.to_string());
    let cause = format!("the Service has no port {number}/{}, only {}", connection.protocol, has.join(", "));
    Finding::new(object, Trouble::ServicePortMissing, cause)
        .evidence("field spec.ports", has.join(", "))
        .remedy("connect to a port of the Service, or add the port to spec.ports")
}

/// The port of a pod that a port of a Service leads to.
fn target_port(port: View<'_, ServicePort>, pod: View<'_, Pod>) -> i64 {
    let (number, name) = (port.target_port().int(), port.target_port().text());
    if let Some(number) = number {
        return number;
    }
    let mut ports = pod.spec().containers().items().flat_map(|container| container.ports().items());
    let named = ports.find(|each| !name.is_empty() && each.name() == name);
    named.and_then(|each| each.container_port().int()).unwrap_or_else(|| port.port().or(0))
}

fn to_pod(world: &World, connection: &Connection, from: View<'_, Pod>, to: View<'_, Pod>) -> Vec<Finding> {
    let ports = to.spec().containers().items().flat_map(|container| container.ports().items());
    let declared: Vec<i64> = ports.filter_map(|port| port.container_port().int()).collect();
    let number = connection.port.or(declared.first().copied());
    let mut findings = match number {
        Some(number) => policies(world, from, to, Port { number, protocol: &connection.protocol }),
        None => Vec::new(),
    };
    findings.extend(follow(world, &[], ObjectRef::to(to)));
    if let Some(number) = number.filter(|number| !declared.is_empty() && !declared.contains(number)) {
        let has: Vec<String> = declared.iter().map(i64::to_string).collect();
        let cause = format!("the pod does not declare port {number}, only {}", has.join(", "));
        findings.push(
            Finding::new(ObjectRef::to(to), Trouble::PodPortUndeclared, cause)
                .evidence("ports of the pod", has.join(", "))
                .remedy("connect to the port on which the program listens"),
        );
    }
    findings
}

/// A pod as the other end of a connection: those on the node's network have the node's address.
fn peer(pod: View<'_, Pod>) -> Peer<'_> {
    let address = pod.status().host_ip().text().parse::<IpAddr>();
    match address {
        Ok(address) if pod.spec().host_network().flag() => Peer::Address(address),
        _ => Peer::Pod(pod),
    }
}

/// What the policies of both ends have against a connection.
fn policies(world: &World, from: View<'_, Pod>, to: View<'_, Pod>, port: Port<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Policies do not apply to pods on the node's network.
    if !from.spec().host_network().flag() {
        let verdict = judge(world, from, Direction::Egress, peer(to), port, Some(to));
        findings.extend(denied(world, from, Direction::Egress, to.metadata().name().text(), port, verdict));
    }
    if !to.spec().host_network().flag() {
        let verdict = judge(world, to, Direction::Ingress, peer(from), port, Some(to));
        findings.extend(denied(world, to, Direction::Ingress, from.metadata().name().text(), port, verdict));
    }
    findings
}

fn denied(
    world: &World,
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
        let found = world.get::<NetworkPolicy>(namespace, &policy.name).view();
        let allowed = found.map_or_else(String::new, |found| summary(found, direction));
        finding = finding.evidence(policy.to_string(), format!("{reason}; it allows {allowed}"));
    }
    Some(finding.remedy(format!(
        "add a rule to spec.{remedy} of one of the policies: kubectl edit networkpolicy -n {namespace}"
    )))
}

/// What answers at the address of the cluster's DNS where it runs on every node instead of in pods. Policies see it as the pod
/// that other clusters have.
fn node_dns(world: &World) -> Option<Made<Pod>> {
    let service = world.get::<Service>("kube-system", "kube-dns").view()?;
    let address = service.spec().cluster_ip().text();
    service.spec().selector().entries().next().is_none().then(|| {
        make!(Pod {
            metadata: { name: "kube-dns", namespace: "kube-system", labels: [("k8s-app", "kube-dns")] },
            spec: { containers: [{ name: "dns", ports: [{ name: "dns", container_port: 53, protocol: "UDP" }] }] },
            status: { pod_ip: address },
        })
    })
}

/// Whether the source may ask the cluster's DNS.
fn dns(world: &World, from: View<'_, Pod>) -> Option<Finding> {
    let on_nodes = node_dns(world);
    let pods = world.list::<Pod>(Some("kube-system")).items.into_iter();
    let in_pods = pods.filter(|pod| pod.metadata().labels().key("k8s-app") == "kube-dns");
    let servers: Vec<View<'_, Pod>> = in_pods.chain(on_nodes.as_ref().map(Made::view)).collect();
    if from.spec().host_network().flag() {
        return None;
    }
    let port = Port { number: 53, protocol: "UDP" };
    let mut last = None;
    for server in servers {
        match judge(world, from, Direction::Egress, peer(server), port, Some(server)) {
            denied @ Verdict::Denied(_) => last = Some(denied),
            Verdict::Allowed(_) | Verdict::Unrestricted => return None,
        }
    }
    let mut finding = denied(world, from, Direction::Egress, "the cluster's DNS", port, last?)?;
    finding.trouble = Trouble::PolicyBlocksDns;
    finding.remedy =
        "allow egress to the pods k8s-app=kube-dns in namespace kube-system on port 53, UDP and TCP"
            .to_owned();
    Some(finding)
}

/// A connection to an address: only the source's policies are known.
fn outside(world: &World, connection: &Connection, from: View<'_, Pod>, address: IpAddr) -> Option<Finding> {
    let port = Port { number: connection.port?, protocol: &connection.protocol };
    if from.spec().host_network().flag() {
        return None;
    }
    let verdict = judge(world, from, Direction::Egress, Peer::Address(address), port, None);
    denied(world, from, Direction::Egress, &address.to_string(), port, verdict)
}
