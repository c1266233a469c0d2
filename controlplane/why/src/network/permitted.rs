//! What lets a connection pass that nothing blocks: the answer for those who look for a reason where there is none.

use super::connection::{Connection, Target, declared, service_port, target_port};
use super::denied::peer;
use super::policy::{Direction, Peer, Port, Verdict, judge};
use crate::dns_names::{Name, resolve};
use crate::finding::ObjectRef;
use crate::pod::is_ready;
use crate::services::selected;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Pod, Service};
use coracle_fields::networking::v1::NetworkPolicy;
use std::collections::BTreeSet;

/// That nothing blocks a connection, with what was looked at; nothing when too little is known for that.
pub fn describe(world: &World, connection: &Connection) -> Option<String> {
    let (namespace, name) = (&connection.from.0, &connection.from.1);
    let from = world.get::<Pod>(namespace, name).view()?;
    let facts = match &connection.to {
        Target::Service(namespace, name) => {
            to_service(world, connection, from, world.get::<Service>(namespace, name).view()?)?
        }
        Target::Pod(namespace, name) => {
            to_pod(world, connection, from, world.get::<Pod>(namespace, name).view()?)?
        }
        Target::Name(name) => match resolve(world, namespace, name) {
            Name::Service(service) => {
                let mut facts = vec![format!("the name {name} is that of {}", ObjectRef::to(service))];
                facts.extend(to_service(world, connection, from, service)?);
                facts
            }
            Name::Other if world.list::<NetworkPolicy>(Some(namespace)).complete => vec![
                format!("{name} is no name of the cluster, so what is behind it was not looked at"),
                format!("no policy keeps {} from asking the cluster's DNS", ObjectRef::to(from)),
            ],
            Name::Other | Name::Unknown(..) => return None,
        },
        Target::Address(address) => {
            let port = Port { number: connection.port?, protocol: &connection.protocol };
            let source = ObjectRef::to(from).to_string();
            vec![
                passes(world, (from, &source), Direction::Egress, Peer::Address(*address), port, None)?,
                format!("whether something answers at {address} was not looked at"),
            ]
        }
    };
    Some(format!("nothing blocks this connection: {}", facts.join("; ")))
}

fn to_service(
    world: &World,
    connection: &Connection,
    from: View<'_, Pod>,
    service: View<'_, Service>,
) -> Option<Vec<String>> {
    let port = service_port(connection, service)?;
    let object = ObjectRef::to(service);
    let shown = format!("{object} has port {}/{}", port.port().or(0), connection.protocol);
    let selector = service.spec().selector().entries().next();
    if selector.is_none() {
        return Some(vec![
            shown,
            "its endpoints are no pods that it selects, and were not looked at".to_owned(),
        ]);
    }
    let pods = selected(world, service)?;
    let ready: Vec<View<'_, Pod>> = pods.iter().copied().filter(|pod| is_ready(*pod)).collect();
    let mut passed = BTreeSet::new();
    for pod in &ready {
        let port = Port { number: target_port(port, *pod), protocol: &connection.protocol };
        passed.extend(ends(world, from, *pod, "its pods", port)?);
    }
    let mut facts = vec![shown, format!("{} of its {} pods are ready", ready.len(), pods.len())];
    facts.extend(passed);
    (!ready.is_empty()).then_some(facts)
}

fn to_pod(
    world: &World,
    connection: &Connection,
    from: View<'_, Pod>,
    to: View<'_, Pod>,
) -> Option<Vec<String>> {
    let number = connection.port.or(declared(to).first().copied())?;
    let name = ObjectRef::to(to).to_string();
    let mut facts = vec![format!("{name} is ready")];
    facts.extend(ends(world, from, to, &name, Port { number, protocol: &connection.protocol })?);
    is_ready(to).then_some(facts)
}

/// What lets a connection out of one pod and into another, which is called `name`.
fn ends(
    world: &World,
    from: View<'_, Pod>,
    to: View<'_, Pod>,
    name: &str,
    port: Port<'_>,
) -> Option<[String; 2]> {
    let source = ObjectRef::to(from).to_string();
    let out = passes(world, (from, &source), Direction::Egress, peer(to), port, Some(to))?;
    Some([out, passes(world, (to, name), Direction::Ingress, peer(from), port, Some(to))?])
}

/// What lets a connection pass at one end, a pod and what it is called; nothing when that is not known.
fn passes(
    world: &World,
    (pod, name): (View<'_, Pod>, &str),
    direction: Direction,
    peer: Peer<'_>,
    port: Port<'_>,
    target: Option<View<'_, Pod>>,
) -> Option<String> {
    if pod.spec().host_network().flag() {
        return Some(format!("no policies apply to {name} on the node's network"));
    }
    if !world.list::<NetworkPolicy>(Some(pod.metadata().namespace().text())).complete {
        return None;
    }
    let way = match direction {
        Direction::Ingress => "into",
        Direction::Egress => "out of",
    };
    match judge(world, pod, direction, peer, port, target) {
        Verdict::Unrestricted => Some(format!("no policy restricts what goes {way} {name}")),
        Verdict::Allowed(policy) => Some(format!("{policy} lets it {way} {name}")),
        Verdict::Denied(_) => None,
    }
}
