//! Links and addresses between the namespaces: a bridge in the hub, a veth pair to every node.

use super::process::Process;
use anyhow::Context;
use coracle_cni::netns::Netns;
use coracle_cni::route::{Cidr, Link, Route, RouteSpec, VethPair};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

/// The bridge's name.
pub const BRIDGE: &str = "hub0";
/// The bridge's hardware address; it is alone in its namespace.
const BRIDGE_MAC: [u8; 6] = [0x0a, 0x59, 10, 89, 0, 1];
/// The hub's IPv6 address.
const HUB6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd89, 0, 0, 0, 0, 0, 0, 1));
/// The loopback link's index, the same in every network namespace.
pub const LOOPBACK: u32 = 1;

/// The network namespace of a holder.
pub fn namespace(holder: &Process) -> anyhow::Result<Netns> {
    let path = PathBuf::from(format!("/proc/{}/ns/net", holder.pid));
    Netns::open(&path).with_context(|| path.display().to_string())
}

/// The bridge that joins the nodes, with the server's address.
pub fn make_hub(hub: &Process, address: &str) -> anyhow::Result<()> {
    let mut hub = Route::of(&namespace(hub)?)?;
    hub.set_up(LOOPBACK)?;
    hub.create_bridge(BRIDGE, 0, BRIDGE_MAC)?;
    let bridge = found(&mut hub, BRIDGE)?;
    hub.add_addresses(bridge.index, &[Cidr { ip: address.parse()?, prefix: 24 }])?;
    Ok(())
}

/// Gives a node an IPv6 address beside the other one, and the hub one to reach it from; returns the node's.
pub fn attach_ipv6(hub: &Process, node: &Process, number: usize) -> anyhow::Result<String> {
    let address = format!("fd89::{:x}", 16 + number);
    let mut hub = Route::of(&namespace(hub)?)?;
    let bridge = found(&mut hub, BRIDGE)?;
    hub.add_addresses(bridge.index, &[Cidr { ip: HUB6, prefix: 64 }])?;
    let mut node = Route::of(&namespace(node)?)?;
    let link = found(&mut node, "eth0")?;
    node.add_addresses(link.index, &[Cidr { ip: address.parse()?, prefix: 64 }])?;
    node.replace_route(&default_route(HUB6, link.index))?;
    Ok(address)
}

/// Joins a node to the bridge; returns its address.
pub fn attach(hub: &Process, node: &Process, number: usize, gateway: &str) -> anyhow::Result<String> {
    let address = format!("10.89.0.{}", 10 + number);
    let inside = namespace(node)?;
    let mut hub = Route::of(&namespace(hub)?)?;
    let bridge = found(&mut hub, BRIDGE)?;
    hub.create_veth(&VethPair {
        host_name: &link_name(number),
        master: bridge.index,
        peer_name: "eth0",
        peer_netns: &inside,
        peer_mac: None,
        mtu: 0,
    })?;
    let mut node = Route::of(&inside)?;
    node.set_up(LOOPBACK)?;
    let link = found(&mut node, "eth0")?;
    node.add_addresses(link.index, &[Cidr { ip: address.parse()?, prefix: 24 }])?;
    node.set_up(link.index)?;
    node.add_route(&default_route(gateway.parse()?, link.index))?;
    Ok(address)
}

/// Takes the link to a node away, if it is still there.
pub fn detach(hub: &Process, number: usize) -> anyhow::Result<()> {
    Ok(Route::of(&namespace(hub)?)?.remove_link(&link_name(number))?)
}

/// The name of the link to a node, in the hub.
fn link_name(number: usize) -> String {
    format!("node{number}")
}

/// The route to everything else, in the main table.
fn default_route(gateway: IpAddr, link: u32) -> RouteSpec {
    RouteSpec {
        destination: Cidr { ip: gateway, prefix: 0 }.network(),
        gateway: Some(gateway),
        link,
        mtu: 0,
        advmss: 0,
        priority: 0,
        table: 0,
        scope: None,
    }
}

fn found(route: &mut Route, name: &str) -> anyhow::Result<Link> {
    route.link(name)?.with_context(|| format!("link {name} is not there"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_default_route_is_of_the_gateway_s_family() {
        for (gateway, destination) in [("10.89.0.1", "0.0.0.0/0"), ("fd89::1", "::/0")] {
            let route = default_route(gateway.parse().unwrap(), 2);
            assert_eq!((route.destination.to_string().as_str(), route.link), (destination, 2));
        }
    }
}
