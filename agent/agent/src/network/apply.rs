//! Applies the plan: adds what is missing, removes our own entries that are not in it.

use coracle_cni::netlink;
use coracle_cni::route::{NeighbourTable, Route, Vxlan};

use super::plan::{Plan, TUNNEL, mtu_inside, tunnel_mac};
use super::underlay::Underlay;
use crate::config::NetworkMode as Mode;

/// Routing protocol number that marks our routes.
const OWNER: u8 = 67;
const ID: u32 = 67;
/// Linux's own port for VXLAN, older than the registered one.
const PORT: u16 = 8472;

/// Why the network was not set up; retried.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No link has the node's address.
    #[error("no link has the node's address {0}")]
    NoLink(std::net::IpAddr),
    /// The kernel refused something.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// The nftables table cannot be watched.
    #[error(transparent)]
    Monitor(#[from] coracle_engine::nft_monitor::NftMonitorError),
    /// The tunnel is not there although it was made.
    #[error("tunnel {TUNNEL} vanished")]
    NoTunnel,
}

/// Makes the tunnel if it is not there, or is another one; its index.
pub fn ensure_tunnel(route: &mut Route, below: &Underlay) -> Result<u32, NetworkError> {
    let mac = tunnel_mac(below.ip);
    let mtu = mtu_inside(Mode::Vxlan, below);
    let text = mac.map(|byte| format!("{byte:02x}")).join(":");
    if let Some(link) = route.link(TUNNEL)? {
        if link.kind == "vxlan" && link.mac == text && link.mtu == mtu && link.up {
            return Ok(link.index);
        }
        route.remove_link(TUNNEL)?;
    }
    route.create_vxlan(&Vxlan {
        name: TUNNEL,
        id: ID,
        port: PORT,
        local: below.ip,
        below: below.link,
        mac,
        mtu,
    })?;
    // Without IPv6 it is not there; with it, addresses outlive a tunnel that is taken down, as those of IPv4 do.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{TUNNEL}/keep_addr_on_down"), "1");
    tracing::info!(tunnel = TUNNEL, mtu, local = %below.ip, "tunnel created");
    route.link(TUNNEL)?.map(|link| link.index).ok_or(NetworkError::NoTunnel)
}

/// Applies the plan; returns the number of changes.
pub fn apply(route: &mut Route, plan: &Plan, tunnel: Option<u32>) -> Result<usize, NetworkError> {
    let mut changes = 0;
    if let Some(tunnel) = tunnel {
        let there = route.addresses(tunnel)?;
        for address in plan.addresses.iter().filter(|address| !there.contains(address)) {
            route.add_addresses(tunnel, &[*address])?;
            changes += 1;
        }
        for (table, wanted) in
            [(NeighbourTable::Forwarding, &plan.forwarding), (NeighbourTable::Neighbours, &plan.neighbours)]
        {
            let there = route.neighbours(table, tunnel)?;
            // Removed first: a node that comes back with another address has the same key.
            for entry in there.iter().filter(|entry| !wanted.contains(entry)) {
                route.remove_neighbour(table, tunnel, *entry)?;
                changes += 1;
            }
            for entry in wanted.iter().filter(|entry| !there.contains(entry)) {
                route.replace_neighbour(table, tunnel, *entry)?;
                changes += 1;
            }
        }
    } else {
        route.remove_link(TUNNEL)?;
    }
    for v6 in [false, true] {
        let there = route.own_routes(OWNER, v6)?;
        for gone in there.iter().filter(|there| !plan.routes.contains(there)) {
            route.remove_own_route(*gone, OWNER)?;
            changes += 1;
        }
        let wanted = plan.routes.iter().filter(|wanted| wanted.destination.ip.is_ipv6() == v6);
        for wanted in wanted.filter(|wanted| !there.contains(wanted)) {
            route.replace_own_route(*wanted, OWNER)?;
            changes += 1;
        }
    }
    Ok(changes)
}
