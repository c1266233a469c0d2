//! UDP, whose connections never end by themselves.

use coracle_tests::eventually;
use std::net::UdpSocket;

use crate::place::ask;
use crate::world::{WAIT, World};

/// A client that keeps sending from one port is led to another endpoint when the first one has ended: with the change of
/// the rules, not when the kernel forgets the connection.
pub fn failover(world: &World) {
    let pods = world.pods("web");
    let _servers: Vec<_> = pods.iter().map(|pod| pod.place.answer_udp(pod.ip, 9001, &pod.name)).collect();
    let slice = |service: &str, pods: &[&crate::world::Pod]| {
        let endpoints: Vec<String> =
            pods.iter().map(|pod| format!("{{addresses: ['{}'], nodeName: {}}}", pod.ip, pod.node)).collect();
        world.apply(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {service}-1, labels: \
             {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, ports: [{{name: '', port: 9001, protocol: UDP}}], \
             endpoints: [{}]}}",
            endpoints.join(", ")
        ));
    };
    let [to, later] = ["game", "later"].map(|name| {
        world.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, \
             spec: {{ports: [{{port: 7000, targetPort: 9001, protocol: UDP}}]}}}}"
        ));
        format!("{}:7000", world.cluster_ip(name))
    });
    // A new connection, which no entry is kept of.
    let leads_to = |service: &str, pod: &crate::world::Pod| {
        eventually("new connections reach the new endpoint", WAIT, || {
            ask(&world.node("node-1").udp(service)).is_some_and(|answer| answer.starts_with(&pod.name))
        });
    };
    let socket = world.node("node-1").udp(&to);
    // Sent before there is anybody: refused, and not remembered.
    assert_eq!(ask(&socket), None);
    slice("game", &[&pods[1], &pods[2]]);
    let mut first = String::new();
    eventually("the first endpoint answers", WAIT, || {
        first = ask(&socket).unwrap_or_default();
        !first.is_empty()
    });
    for _ in 0..10 {
        assert_eq!(ask(&socket).unwrap(), first, "one connection, one endpoint");
    }
    // Back and forth some times.
    let mut current = if first.starts_with(&pods[1].name) { &pods[1] } else { &pods[2] };
    for _ in 0..5 {
        let rest = if current.name == pods[1].name { &pods[2] } else { &pods[1] };
        slice("game", &[rest]);
        leads_to(&to, rest);
        // The agent makes one change after the other: it is done with this one, entries included, when a later one is made.
        slice("later", &[rest]);
        leads_to(&later, rest);
        forget_answers(&socket);
        let mut answer = None;
        eventually("an answer", WAIT, || {
            answer = ask(&socket);
            answer.is_some()
        });
        let answer = answer.unwrap();
        assert!(answer.starts_with(&rest.name), "{answer} answers, {} is the endpoint", rest.name);
        current = rest;
    }
    slice("game", &[]);
    slice("later", &[]);
    eventually("nobody is left", WAIT, || ask(&socket).is_none());
    world.k.run("delete service game later");
}

/// Drops answers to questions that were given up.
fn forget_answers(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 512]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}
