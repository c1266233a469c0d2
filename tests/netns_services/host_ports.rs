//! Ports of the node that lead to one pod.

use coracle_tests::eventually;

use crate::place::ask;
use crate::world::{WAIT, World};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: host-port, labels: {app: host-port}}
spec:
  nodeSelector: {kubernetes.io/hostname: node-2}
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir -p /tmp/w; hostname > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"]
    ports: [{containerPort: 8080, hostPort: 8088}, {containerPort: 9008, hostPort: 8089, protocol: UDP}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
"#;

/// From outside, other nodes, other pods, the node itself and the pod itself; only on that node, and only while it lives.
pub fn host_port(world: &World) {
    world.apply(POD);
    world.k.run("wait --for=condition=Ready pod/host-port --timeout=240s");
    let pod = world.pods("host-port").remove(0);
    assert_eq!(pod.node, "node-2");
    let to = format!("{}:8088", world.address("node-2"));
    let others = world.pods("web");
    let mut places = vec![world.hub.clone(), world.node("node-1"), world.node("node-2"), pod.place.clone()];
    places.extend(others.iter().map(|pod| pod.place.clone()));
    for place in &places {
        eventually("the pod answers on the node's port", WAIT, || {
            place.get(&to).is_ok_and(|name| name == pod.name)
        });
    }
    eventually("and on loopback", WAIT, || {
        world.node("node-2").get("127.0.0.1:8088").is_ok_and(|name| name == pod.name)
    });
    let refused = |to: &str| {
        world.hub.get(to).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    assert!(refused(&format!("{}:8088", world.address("node-1"))), "another node");
    // The client is seen as it is.
    let server = pod.place.answer_udp(pod.ip, 9008, "host-port");
    let socket = world.hub.udp(&format!("{}:8089", world.address("node-2")));
    eventually("an answer by UDP", WAIT, || {
        ask(&socket).is_some_and(|answer| answer == "host-port 10.89.0.1")
    });
    drop(server);
    world.k.run("delete pod host-port --wait=true --timeout=120s");
    eventually("the port is closed with the pod", WAIT, || refused(&to));
}
