//! UDP, whose connections never end by themselves.

use coracle_tests::eventually;
use std::time::Instant;

use crate::place::ask;
use crate::world::{WAIT, World};

/// A client that keeps sending from one port is led to another endpoint within a second of the first one's end.
pub fn failover(world: &World) {
    let pods = world.pods("web");
    let _servers: Vec<_> = pods.iter().map(|pod| pod.place.answer_udp(pod.ip, 9001, &pod.name)).collect();
    let slice = |pods: &[&crate::world::Pod]| {
        let endpoints: Vec<String> =
            pods.iter().map(|pod| format!("{{addresses: ['{}'], nodeName: {}}}", pod.ip, pod.node)).collect();
        world.apply(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: game-1, labels: \
             {{kubernetes.io/service-name: game}}}}, addressType: IPv4, ports: [{{name: '', port: 9001, protocol: UDP}}], \
             endpoints: [{}]}}",
            endpoints.join(", ")
        ));
    };
    world.apply("{apiVersion: v1, kind: Service, metadata: {name: game}, spec: {ports: [{port: 7000, targetPort: 9001, protocol: UDP}]}}");
    let to = format!("{}:7000", world.cluster_ip("game"));
    let socket = world.node("node-1").udp(&to);
    // Sent before there is anybody: refused, and not remembered.
    assert_eq!(ask(&socket), None);
    slice(&[&pods[1], &pods[2]]);
    let mut first = String::new();
    eventually("the first endpoint answers", WAIT, || {
        first = ask(&socket).unwrap_or_default();
        !first.is_empty()
    });
    for _ in 0..10 {
        assert_eq!(ask(&socket).unwrap(), first, "one connection, one endpoint");
    }
    // Back and forth some times.
    let mut taken = Vec::new();
    let mut current = if first.starts_with(&pods[1].name) { &pods[1] } else { &pods[2] };
    for _ in 0..5 {
        let rest = if current.name == pods[1].name { &pods[2] } else { &pods[1] };
        slice(&[rest]);
        let begun = Instant::now();
        eventually("another endpoint answers", WAIT, || {
            ask(&socket).is_some_and(|answer| answer.starts_with(&rest.name))
        });
        taken.push(begun.elapsed());
        current = rest;
    }
    // The client never pauses for as long as the kernel remembers a connection: it moves because the agent removed the entry.
    println!("UDP failover after {taken:?}");
    slice(&[]);
    eventually("nobody is left", WAIT, || ask(&socket).is_none());
    world.k.run("delete service game");
}
