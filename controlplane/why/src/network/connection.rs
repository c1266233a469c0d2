//! Why one pod cannot connect to another: name, Service, port, policies, and the state of the destination.

use super::denied::{denied, peer, policies};
use super::policy::{Direction, Peer, Port, Verdict, judge};
use crate::dns_names::{Name, resolve};
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::pod::{has_ended, is_ready};
use crate::services::{selected, unknown_port};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::core::v1::{Pod, Service, ServicePort};
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
    if from.status().phase() != "Running" {
        return not_running(world, from);
    }
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
            // The address is not known, but the name has to be asked for.
            Name::Other => dns(world, from).into_iter().collect(),
        },
        Target::Address(address) => outside(world, connection, from, *address).into_iter().collect(),
    }
}

/// The Service or the pod that has an address. Pods on the node's network share that of the node.
pub fn owner(world: &World, address: IpAddr) -> Option<Target> {
    let is_it = |text: &str| text.parse::<IpAddr>().is_ok_and(|own| own == address);
    let service = world.list::<Service>(None).items.into_iter().find(|service| {
        let spec = service.spec();
        is_it(spec.cluster_ip().text()) || spec.cluster_ips().texts().any(is_it)
    });
    let pod = world.list::<Pod>(None).items.into_iter().find(|pod| {
        let status = pod.status();
        let is_own = !pod.spec().host_network().flag() && !has_ended(*pod);
        is_own
            && (is_it(status.pod_ip().text()) || status.pod_ips().items().any(|own| is_it(own.ip().text())))
    });
    let parts = |object: ObjectRef| (object.namespace, object.name);
    if let Some(service) = service {
        let (namespace, name) = parts(ObjectRef::to(service));
        return Some(Target::Service(namespace, name));
    }
    let (namespace, name) = parts(ObjectRef::to(pod?));
    Some(Target::Pod(namespace, name))
}

/// Nothing can connect from a pod that does not run: what keeps it from running.
fn not_running(world: &World, from: View<'_, Pod>) -> Vec<Finding> {
    let source = ObjectRef::to(from);
    let phase = from.status().phase().or("Pending");
    let fact = format!("{source} is not running ({phase}), so nothing connects from it");
    let mut findings = follow(world, &[], source.clone());
    for finding in &mut findings {
        finding.cause = format!("{fact}: {}", finding.cause);
    }
    if findings.is_empty() {
        let remedy = format!("ask from a pod that runs; kubectl why {} says more", source.arguments());
        findings.push(Finding::new(source, Trouble::Unexplained, fact).remedy(remedy));
    }
    findings
}

fn to_service(
    world: &World,
    connection: &Connection,
    from: View<'_, Pod>,
    service: View<'_, Service>,
) -> Vec<Finding> {
    let object = ObjectRef::to(service);
    let Some(port) = service_port(connection, service) else {
        return vec![no_port(object, connection, &service.spec().ports().items().collect::<Vec<_>>())];
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
    let called = format!("the pods of {object}");
    let blocked = chosen.iter().flat_map(|pod| {
        let port = Port { number: target_port(port, *pod), protocol: &connection.protocol };
        policies(world, from, *pod, &called, port)
    });
    // Connections are spread over the pods: one that is blocked already makes some of them fail.
    let mut findings = grouped(blocked.collect(), chosen.len());
    findings.extend(
        follow(world, &[], object)
            .into_iter()
            .filter(|finding| ready.is_empty() || finding.trouble != Trouble::ServiceNotReady),
    );
    findings
}

/// One finding for all backends of which the same is to be said.
fn grouped(all: Vec<Finding>, backends: usize) -> Vec<Finding> {
    let mut groups: Vec<(usize, Finding)> = Vec::new();
    for finding in all {
        let same = groups.iter_mut().find(|(_, other)| {
            other.trouble == finding.trouble
                && other.cause == finding.cause
                && other.evidence == finding.evidence
        });
        match same {
            None => groups.push((1, finding)),
            Some((count, first)) => {
                *count += 1;
                if first.object != finding.object {
                    first.others.push(finding.object);
                }
            }
        }
    }
    let told = groups.into_iter().map(|(count, mut finding)| {
        if backends > 1 {
            finding.cause = format!("{count} of {backends} backends: {}", finding.cause);
        }
        finding
    });
    told.collect()
}

/// The port of a Service that a connection is for.
pub(super) fn service_port<'a>(
    connection: &Connection,
    service: View<'a, Service>,
) -> Option<View<'a, ServicePort>> {
    service.spec().ports().items().find(|port| {
        connection.port.is_none_or(|number| port.port() == number)
            && port.protocol().or("TCP") == connection.protocol
    })
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
pub(super) fn target_port(port: View<'_, ServicePort>, pod: View<'_, Pod>) -> i64 {
    let (number, name) = (port.target_port().int(), port.target_port().text());
    if let Some(number) = number {
        return number;
    }
    let mut ports = pod.spec().containers().items().flat_map(|container| container.ports().items());
    let named = ports.find(|each| !name.is_empty() && each.name() == name);
    named.and_then(|each| each.container_port().int()).unwrap_or_else(|| port.port().or(0))
}

/// The ports that a pod declares.
pub(super) fn declared(pod: View<'_, Pod>) -> Vec<i64> {
    let ports = pod.spec().containers().items().flat_map(|container| container.ports().items());
    ports.filter_map(|port| port.container_port().int()).collect()
}

fn to_pod(world: &World, connection: &Connection, from: View<'_, Pod>, to: View<'_, Pod>) -> Vec<Finding> {
    let declared = declared(to);
    let number = connection.port.or(declared.first().copied());
    let mut findings = match number {
        Some(number) => {
            let port = Port { number, protocol: &connection.protocol };
            policies(world, from, to, to.metadata().name().text(), port)
        }
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

/// The block of a single address.
fn host_block(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 128 } else { 32 })
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
    let mut finding = denied(from, Direction::Egress, "the cluster's DNS", port, last?)?;
    finding.trouble = Trouble::PolicyBlocksDns;
    let pods = "the pods k8s-app=kube-dns in namespace kube-system";
    finding.remedy = match on_nodes.as_ref().map(|server| server.view().status().pod_ip().text()) {
        // There are no pods, and policies that name them work nevertheless.
        Some(address) => {
            let block = host_block(address);
            format!(
                "the agent of every node answers DNS at {address}: allow egress to port 53, UDP and TCP, of ipBlock {block} \
                 or, as on other clusters, of {pods}"
            )
        }
        None => format!("allow egress to {pods} on port 53, UDP and TCP"),
    };
    Some(finding)
}

/// A connection to an address: only the source's policies are known.
fn outside(world: &World, connection: &Connection, from: View<'_, Pod>, address: IpAddr) -> Option<Finding> {
    let port = Port { number: connection.port?, protocol: &connection.protocol };
    if from.spec().host_network().flag() {
        return None;
    }
    let verdict = judge(world, from, Direction::Egress, Peer::Address(address), port, None);
    denied(from, Direction::Egress, &address.to_string(), port, verdict)
}
