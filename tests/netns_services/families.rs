//! IPv6 beside IPv4.

use coracle_tests::eventually;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};

use crate::place::{Place, ask};
use crate::world::{Pod, WAIT, World};

/// Asks by UDP from new ports until every pod has answered.
fn all_answer_udp(from: &Place, to: &str, pods: &[Pod]) {
    let mut seen = BTreeSet::new();
    eventually(&format!("all answer at {to}"), WAIT, || {
        let answer = ask(&from.udp(to));
        seen.extend(answer.and_then(|text| text.split(' ').next().map(str::to_owned)));
        seen.len() == pods.len()
    });
}

/// Whether a TCP connection brings back what it is sent.
fn echoes(from: &Place, to: &str) -> bool {
    let Ok(mut stream) = from.connect(to) else { return false };
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut buffer).is_ok() && &buffer == b"hello"
}

/// One Service with addresses of both families: from pods, nodes and outside, on cluster addresses and ports of nodes.
pub fn dual_stack(world: &World) {
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: six}, spec: {type: NodePort, selector: {app: web}, \
         ipFamilyPolicy: RequireDualStack, ports: [{name: u, port: 9, protocol: UDP, targetPort: 9006}, \
         {name: t, port: 9, protocol: TCP, targetPort: 9006}]}}",
    );
    let pods = world.pods("web");
    let both = || pods.iter().flat_map(|pod| pod.ips.iter().map(move |ip| (pod, *ip)));
    let _udp: Vec<_> = both().map(|(pod, ip)| pod.place.answer_udp(ip, 9006, &pod.name)).collect();
    let _tcp: Vec<_> = both().map(|(pod, ip)| pod.place.echo_tcp(ip, 9006)).collect();
    let service = world.json("get service six");
    let ips: Vec<IpAddr> = service["spec"]["clusterIPs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ip| ip.as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(ips.iter().filter(|ip| ip.is_ipv6()).count(), 1, "{ips:?}");
    let node = world.node("node-2");
    for ip in ips {
        let to = SocketAddr::new(ip, 9).to_string();
        all_answer_udp(&pods[0].place, &to, &pods);
        all_answer_udp(&node, &to, &pods);
        eventually("TCP is answered", WAIT, || echoes(&pods[1].place, &to) && echoes(&node, &to));
    }
    let port = |at: usize| service["spec"]["ports"][at]["nodePort"].as_u64().unwrap() as u16;
    for name in ["node-1", "node-2", "node-3"] {
        for address in [world.address(name), world.address6(name)] {
            let at = |port: u16| SocketAddr::new(address.parse().unwrap(), port).to_string();
            all_answer_udp(&world.hub, &at(port(0)), &pods);
            eventually("TCP is answered from outside", WAIT, || echoes(&world.hub, &at(port(1))));
            eventually("and from pods", WAIT, || echoes(&pods[2].place, &at(port(1))));
        }
    }
    // The source is the pod's own, also over the tunnel.
    let (from, to) = (&pods[0], &pods[1]);
    for ip in &to.ips {
        let own = from.ips.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).unwrap();
        let socket = from.place.udp(&SocketAddr::new(*ip, 9006).to_string());
        eventually("an answer", WAIT, || ask(&socket) == Some(format!("{} {own}", to.name)));
        assert!(echoes(&from.place, &SocketAddr::new(*ip, 9006).to_string()));
    }
    // A balancer of IPv6 only has the nodes' addresses of IPv6 only.
    world.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: only-six}, spec: {type: LoadBalancer, selector: {app: web}, \
         ipFamilyPolicy: SingleStack, ipFamilies: [IPv6], ports: [{port: 906, targetPort: 9006}]}}",
    );
    let ingress = || world.json("get service only-six")["status"]["loadBalancer"]["ingress"].clone();
    eventually("addresses of the balancer", WAIT, || ingress().as_array().is_some_and(|all| all.len() == 3));
    for address in ingress().as_array().unwrap() {
        let to = SocketAddr::new(address["ip"].as_str().unwrap().parse().unwrap(), 906);
        assert!(to.is_ipv6(), "{to}");
        eventually("the balancer answers", WAIT, || echoes(&world.hub, &to.to_string()));
    }
    world.k.run("delete service six only-six");
}
