//! The link that carries packets between nodes.

use coracle_cni::netlink;
use coracle_cni::route::Route;
use std::net::IpAddr;

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
