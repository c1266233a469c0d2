//! Desired routes and neighbours for pods of other nodes. Pure.

use coracle_cni::route::{Cidr, Neighbour, OwnRoute};
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::underlay::Underlay;
use crate::cluster::Node;
use crate::config::NetworkMode as Mode;

/// The tunnel's name.
pub const TUNNEL: &str = "coracle-vxlan";

/// Desired state of the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Routes to the pods of other nodes.
    pub routes: BTreeSet<OwnRoute>,
    /// Hardware addresses of tunnel ends, by their address inside.
    pub neighbours: BTreeSet<Neighbour>,
    /// Hardware addresses of tunnel ends, by their address outside.
    pub forwarding: BTreeSet<Neighbour>,
    /// This node's addresses inside the tunnel.
    pub addresses: Vec<Cidr>,
}

/// The largest packet of pods.
pub fn mtu_inside(mode: Mode, below: &Underlay) -> u32 {
    // Ethernet, UDP, VXLAN and the outer address.
    let overhead = if below.ip.is_ipv4() { 50 } else { 70 };
    if mode == Mode::Vxlan { below.mtu.saturating_sub(overhead) } else { below.mtu }
}

/// The hardware address of a node's tunnel end: every node knows it without being told.
pub fn tunnel_mac(ip: IpAddr) -> [u8; 6] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [0x0e, 0xc0, a, b, c, d]
        }
        IpAddr::V6(ip) => {
            let hash = ip.octets().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            let [a, b, c, d, e, ..] = hash.to_be_bytes();
            [0x0e, a, b, c, d, e]
        }
    }
}

/// The address of a node inside the tunnel: the first of its range, which no pod gets.
fn inside(range: &Cidr) -> IpAddr {
    range.network().ip
}

/// What is needed to reach `others` on `link`: the tunnel, or the link the node's own address is on.
pub fn plan(mode: Mode, own: &Node, others: &[&Node], below: &Underlay, link: u32) -> Plan {
    let mut plan = Plan::default();
    if mode == Mode::Vxlan {
        let host = |range: &Cidr| Cidr { ip: inside(range), prefix: range.bits() };
        plan.addresses = own.pod_ranges.iter().map(host).collect();
    }
    for node in others {
        let same_family = |ip: &&IpAddr| ip.is_ipv4() == below.ip.is_ipv4();
        let end = node.ips.iter().find(same_family);
        for range in &node.pod_ranges {
            let destination = range.network();
            match (mode, end) {
                (Mode::Vxlan, Some(end)) => {
                    let (gateway, mac) = (inside(range), tunnel_mac(*end));
                    plan.routes.insert(OwnRoute { destination, gateway, link });
                    plan.neighbours.insert(Neighbour { ip: gateway, mac });
                    plan.forwarding.insert(Neighbour { ip: *end, mac });
                }
                (Mode::Routes, _) => {
                    let gateway = node.ips.iter().find(|ip| ip.is_ipv4() == destination.ip.is_ipv4());
                    plan.routes.extend(gateway.map(|gateway| OwnRoute {
                        destination,
                        gateway: *gateway,
                        link,
                    }));
                }
                _ => {}
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(ip: &str, ranges: &[&str]) -> Node {
        Node {
            ips: [ip.parse().unwrap()].into(),
            pod_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            zone: Box::default(),
            is_leaving: false,
        }
    }

    #[test]
    fn tunnels_and_routes() {
        let below = Underlay { ip: "192.0.2.1".parse().unwrap(), link: 2, mtu: 1500 };
        let own = node("192.0.2.1", &["10.244.0.0/24", "fd00::/64"]);
        let other = node("192.0.2.2", &["10.244.1.0/24", "fd00:0:0:1::/64"]);
        let silent = node("192.0.2.3", &[]);
        let tunnel = plan(Mode::Vxlan, &own, &[&other, &silent], &below, 7);
        assert_eq!((tunnel.routes.len(), tunnel.neighbours.len(), tunnel.forwarding.len()), (2, 2, 1));
        assert_eq!(tunnel.addresses[0].to_string(), "10.244.0.0/32");
        assert_eq!(tunnel.forwarding.first().unwrap().mac, [0x0e, 0xc0, 192, 0, 2, 2]);
        let routes = plan(Mode::Routes, &own, &[&other], &below, 2);
        // No way to IPv6 pods without an IPv6 address of their node.
        assert_eq!((routes.routes.len(), routes.neighbours.len()), (1, 0));
        assert_eq!(routes.routes.first().unwrap().gateway.to_string(), "192.0.2.2");
        assert_eq!((mtu_inside(Mode::Vxlan, &below), mtu_inside(Mode::Routes, &below)), (1450, 1500));
    }
}
