//! The network between nodes: tunnel and routes to pods of other nodes, from Node objects.

// Desired state of the kernel. Pure.
mod plan;
// Applies the plan.
mod apply;
// Masquerades traffic that leaves the cluster.
mod masquerade;
// The task.
mod run;

pub use apply::NetworkError;
pub use plan::mtu_inside;
pub use run::follow;

use coracle_cni::netlink;
use coracle_cni::route::Route;
use std::net::IpAddr;

/// How packets reach pods of other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// VXLAN tunnels between nodes, over any network.
    #[default]
    Vxlan,
    /// Routes, for nodes on one link.
    Routes,
    /// Managed by another network plugin.
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

/// MTU of pods for the CNI configuration; `None` for the kernel's default.
pub fn pod_mtu(mode: Mode, ips: &[String]) -> Option<u32> {
    let ip = ips.first()?.parse().ok()?;
    let below = underlay(ip).ok()??;
    Some(mtu_inside(mode, &below))
}
