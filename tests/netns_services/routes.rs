//! `--network=routes`: nodes on one link reach each other's pods without a tunnel.

use coracle_tests::eventually;
use std::net::SocketAddr;

use crate::place::ask;
use crate::world::{WAIT, World, names};

pub fn without_a_tunnel() {
    let world = World::start_with(2, &["--agent-flag=--network=routes"]);
    let pods = world.pods("web");
    assert_eq!(pods.len(), 2);
    for (from, to) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        assert_ne!(from.node, to.node);
        assert_eq!(to.ips.len(), 2, "both families");
        for ip in &to.ips {
            let _udp = to.place.answer_udp(*ip, 9000, &to.name);
            let _tcp = to.place.echo_tcp(*ip, 9001);
            let own = from.ips.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).unwrap();
            let socket = from.place.udp(&SocketAddr::new(*ip, 9000).to_string());
            let want = format!("{} {own}", to.name);
            eventually(&format!("{ip} answers by UDP"), WAIT, || {
                ask(&socket).is_some_and(|answer| answer == want)
            });
            eventually(&format!("{ip} answers by TCP"), WAIT, || {
                from.place.connect(&SocketAddr::new(*ip, 9001).to_string()).is_ok()
            });
        }
    }
    world.all_answer(&world.node("node-1"), &format!("{}:80", world.cluster_ip("web")), &names(&pods));
    world.all_answer(&world.hub, &format!("{}:30080", world.address("node-2")), &names(&pods));
    let links = world.cluster.inside("node-1", &["ip", "link"]);
    assert!(!links.contains("vxlan"), "{links}");
    let range = world.k.run("get node node-2 -o jsonpath={.spec.podCIDR}");
    let routes = || world.cluster.inside("node-1", &["ip", "route"]);
    assert!(routes().contains(&format!("{range} via {} dev eth0", world.address("node-2"))), "{}", routes());
    // Pods may send as much at once as the link takes.
    let bridge = world.cluster.inside("node-1", &["ip", "link", "show", "coracle0"]);
    assert!(bridge.contains("mtu 1500"), "{bridge}");
    world.cluster.kill_agent("node-2");
    world.k.run("delete node node-2");
    eventually("a node that leaves is removed", WAIT, || !routes().contains(&range));
}
