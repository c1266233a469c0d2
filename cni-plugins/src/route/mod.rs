//! Links, addresses and routes of one network namespace.

mod link;
mod create;
mod address;
mod table;
mod neighbour;
mod rule;
mod qdisc;

pub use address::{Cidr, from_octets, octets};
pub use create::{VethPair, Vxlan};
pub use link::Link;
pub use neighbour::{Neighbour, NeighbourTable};
pub use qdisc::TokenBucket;
pub use rule::Rule;
pub use table::{OwnRoute, RouteSpec};

use netlink_packet_core::{NlaBuffer, NlasIterator};

use crate::{
    netlink::{Error, Protocol, Result, Socket},
    netns::Netns,
};

/// rtnetlink of one network namespace.
#[derive(Debug)]
pub struct Route {
    socket: Socket,
}

impl Route {
    /// Opens a socket in the network namespace of this thread.
    pub fn here() -> Result<Self> {
        Ok(Route { socket: Socket::open(Protocol::Route)? })
    }

    /// Opens a socket in another network namespace.
    pub fn of(netns: &Netns) -> Result<Self> {
        netns.within(Route::here).map_err(Error::io)?
    }
}

/// The attributes behind a header of a length, up to one that is malformed.
///
/// They are decoded one by one: an attribute of a newer kernel that cannot be decoded must not hide the object.
fn attributes(payload: &[u8], header: usize) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(payload.get(header..).unwrap_or_default()).map_while(std::result::Result::ok)
}
