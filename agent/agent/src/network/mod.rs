//! The network between nodes: how pods of other nodes are reached, from what the Node objects say.

// What belongs in the kernel.
mod plan;
// Making it so.
mod apply;
// Sources of what leaves the pods' network.
mod masquerade;
// The task.
mod run;

pub use apply::NetworkError;
pub use plan::mtu_inside;
pub use run::follow;

use coracle_cni::netlink;
use coracle_cni::route::Route;
use std::net::IpAddr;

/// How pods of other nodes are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Through a tunnel between nodes, over any network.
    #[default]
    Vxlan,
    /// By routes, for nodes on one link.
    Routes,
    /// Somebody else sees to it.
    None,
}

/// The link that has an address of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// The address.
    pub ip: IpAddr,
    /// The link's index.
    pub link: u32,
    /// Its largest packet.
    pub mtu: u32,
}

/// Looks for the link that has an address.
pub fn underlay(ip: IpAddr) -> netlink::Result<Option<Underlay>> {
    let mut route = Route::here()?;
    for link in route.links()? {
        if route.addresses(link.index)?.iter().any(|address| address.ip == ip) {
            return Ok(Some(Underlay { ip, link: link.index, mtu: link.mtu }));
        }
    }
    Ok(None)
}

/// The largest packet of pods, for the network configuration; `None` leaves it to the kernel.
pub fn pod_mtu(mode: Mode, ips: &[String]) -> Option<u32> {
    let ip = ips.first()?.parse().ok()?;
    let below = underlay(ip).ok()??;
    Some(mtu_inside(mode, &below))
}
