//! Links, addresses and routes of one network namespace.

mod link;
mod address;
mod table;
mod neighbour;

pub use address::{Cidr, from_octets, octets};
pub use link::{Link, VethPair, Vxlan};
pub use neighbour::{Neighbour, NeighbourTable};
pub use table::{OwnRoute, RouteSpec};

use crate::{
    netlink::{Protocol, Result, Socket},
    netns::Netns,
};

/// rtnetlink of one network namespace.
#[derive(Debug)]
pub struct Route {
    socket: Socket,
}

impl Route {
    /// Speaks for the namespace of this thread.
    pub fn here() -> Result<Self> {
        Ok(Route { socket: Socket::open(Protocol::Route)? })
    }

    /// Speaks for another namespace.
    pub fn of(netns: &Netns) -> Result<Self> {
        netns.within(Route::here).map_err(|e| {
            crate::netlink::Error::Socket(nix::errno::Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
        })?
    }
}
