//! Ports of the node that lead to one pod.

use coracle_tests::eventually;

use crate::place::ask;
use crate::world::{Pod, WAIT, World};

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
    for what in [
        "delete table inet coracle_hostports",
        "flush table inet coracle_hostports",
        "flush chain inet coracle_hostports prerouting",
    ] {
        let mut words = vec!["nft"];
        words.extend(what.split(' '));
        assert_eq!(world.cluster.inside("node-2", &words), "", "nft {what}");
        let begun = std::time::Instant::now();
        eventually("the port is back", WAIT, || world.hub.get(&to).is_ok_and(|name| name == pod.name));
        println!("repaired {:.0?} after nft {what}", begun.elapsed());
    }
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
    let near = others.iter().find(|other| other.node == pod.node).unwrap();
    neighbours(world, near, &pod);
    neighbours(world, &pod, near);
    world.k.run("delete pod host-port --wait=true --timeout=120s");
    eventually("the port is closed with the pod", WAIT, || refused(&to));
}

/// A pod that reaches its neighbour on the bridge by a Service is seen as itself, of both families.
fn neighbours(world: &World, from: &Pod, to: &Pod) {
    let slices = to.ips.iter().map(|ip| {
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        format!(
            "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: next-door-{}, labels: \
             {{kubernetes.io/service-name: next-door}}}}, addressType: {family}, ports: [{{name: '', port: 9009, protocol: UDP}}], \
             endpoints: [{{addresses: ['{ip}'], nodeName: {}}}]}}",
            family.to_lowercase(),
            to.node
        )
    });
    let slices: String = slices.collect();
    world.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: next-door}}, spec: {{ipFamilyPolicy: RequireDualStack, \
         ports: [{{port: 9, targetPort: 9009, protocol: UDP}}]}}}}{slices}"
    ));
    let _servers: Vec<_> = to.ips.iter().map(|ip| to.place.answer_udp(*ip, 9009, "near")).collect();
    let service = world.json("get service next-door");
    for ip in service["spec"]["clusterIPs"].as_array().unwrap() {
        let ip: std::net::IpAddr = ip.as_str().unwrap().parse().unwrap();
        let own = from.ips.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).unwrap();
        let mut answer = None;
        eventually("a neighbour answers", WAIT, || {
            answer = ask(&from.place.udp(&std::net::SocketAddr::new(ip, 9).to_string()));
            answer.is_some()
        });
        assert_eq!(answer.unwrap(), format!("near {own}"), "from {} to {} by {ip}", from.name, to.name);
    }
    // Slices that nobody manages stay when their Service goes.
    world.k.run("delete service next-door");
    world.k.run("delete endpointslices -l kubernetes.io/service-name=next-door");
}
