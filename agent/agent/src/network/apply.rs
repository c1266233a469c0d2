//! Applies the plan: adds what is missing, removes our own entries that are not in it.

use coracle_cni::netlink;
use coracle_cni::route::{Cidr, Neighbour, NeighbourTable, OwnRoute, Route, Vxlan};

use super::links::Links;
use super::plan::{Plan, TUNNEL, mtu_inside, tunnel_mac};
use super::underlay::Underlay;
use crate::config::NetworkMode as Mode;

/// Routing protocol number that marks our routes.
pub const OWNER: u8 = 67;
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

/// Makes the tunnel if it is not there, or is another one; its index, and whether it was made.
pub async fn ensure_tunnel(links: &Links, below: &Underlay) -> Result<(u32, bool), NetworkError> {
    let mac = tunnel_mac(below.ip);
    let mtu = mtu_inside(Mode::Vxlan, below);
    let text = mac.map(|byte| format!("{byte:02x}")).join(":");
    if let Some(link) = read(|route| route.link(TUNNEL))? {
        if link.kind == "vxlan" && link.mac == text && link.mtu == mtu && link.up {
            return Ok((link.index, false));
        }
        links.remove_link(TUNNEL).await?;
    }
    let tunnel = Vxlan { name: TUNNEL, id: ID, port: PORT, local: below.ip, below: below.link, mac, mtu };
    links.create_vxlan(&tunnel).await?;
    // Without IPv6 it is not there; with it, addresses outlive a tunnel that is taken down, as those of IPv4 do.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{TUNNEL}/keep_addr_on_down"), "1");
    tracing::info!(tunnel = TUNNEL, mtu, local = %below.ip, "tunnel created");
    let link = read(|route| route.link(TUNNEL))?.ok_or(NetworkError::NoTunnel)?;
    Ok((link.index, true))
}

/// Reads from the kernel.
fn read<T>(read: impl FnOnce(&mut Route) -> netlink::Result<T>) -> netlink::Result<T> {
    tokio::task::block_in_place(|| read(&mut Route::here()?))
}

/// What of a plan is there.
struct Existing {
    addresses: Vec<Cidr>,
    forwarding: Vec<Neighbour>,
    neighbours: Vec<Neighbour>,
    routes: Vec<OwnRoute>,
}

impl Existing {
    fn read(route: &mut Route, tunnel: Option<u32>) -> netlink::Result<Self> {
        let mut routes = route.own_routes(OWNER, false)?;
        routes.extend(route.own_routes(OWNER, true)?);
        let (addresses, forwarding, neighbours) = match tunnel {
            Some(tunnel) => (
                route.addresses(tunnel)?,
                route.neighbours(NeighbourTable::Forwarding, tunnel)?,
                route.neighbours(NeighbourTable::Neighbours, tunnel)?,
            ),
            None => (Vec::new(), Vec::new(), Vec::new()),
        };
        Ok(Self { addresses, forwarding, neighbours, routes })
    }
}

/// Applies the plan; returns the number of changes.
pub async fn apply(links: &Links, plan: &Plan, tunnel: Option<u32>) -> Result<usize, NetworkError> {
    let mut changes = 0;
    if tunnel.is_none() {
        links.remove_link(TUNNEL).await?;
    }
    let there = read(|route| Existing::read(route, tunnel))?;
    if let Some(tunnel) = tunnel {
        for address in plan.addresses.iter().filter(|address| !there.addresses.contains(address)) {
            links.add_address(tunnel, *address).await?;
            changes += 1;
        }
        for (table, wanted, there) in [
            (NeighbourTable::Forwarding, &plan.forwarding, &there.forwarding),
            (NeighbourTable::Neighbours, &plan.neighbours, &there.neighbours),
        ] {
            // Removed first: a node that comes back with another address has the same key.
            for entry in there.iter().filter(|entry| !wanted.contains(entry)) {
                links.remove_neighbour(table, tunnel, *entry).await?;
                changes += 1;
            }
            for entry in wanted.iter().filter(|entry| !there.contains(entry)) {
                links.replace_neighbour(table, tunnel, *entry).await?;
                changes += 1;
            }
        }
    }
    for gone in there.routes.iter().filter(|route| !plan.routes.contains(route)) {
        links.remove_own_route(*gone, OWNER).await?;
        changes += 1;
    }
    for wanted in plan.routes.iter().filter(|route| !there.routes.contains(route)) {
        links.replace_own_route(*wanted, OWNER).await?;
        changes += 1;
    }
    Ok(changes)
}
