//! Neighbours: hardware addresses of addresses, and the tunnel end behind a hardware address.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, ParseableParametrized};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
        NeighbourState,
    },
};
use nix::errno::Errno;

use super::{Route, address::from_octets, attributes};
use crate::netlink::{Message, Result, Tolerate};

/// Length of `struct ndmsg`.
const HEADER: usize = 12;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

/// An address and a hardware address that belong together on a link.
///
/// As a neighbour: packets to the address go to the hardware address. As forwarding of a tunnel: frames to the hardware
/// address go to the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Neighbour {
    /// The address.
    pub ip: IpAddr,
    /// The hardware address.
    pub mac: [u8; 6],
}

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourTable {
    /// Neighbours, IPv4 and IPv6.
    Neighbours,
    /// Forwarding of a tunnel.
    Forwarding,
}

impl Route {
    /// Adds an entry that stays, in place of one with the same key.
    pub fn replace_neighbour(&mut self, table: NeighbourTable, link: u32, entry: Neighbour) -> Result<()> {
        let body = RouteNetlinkMessage::NewNeighbour(message(table, link, entry));
        let action = format!("changing neighbour {}", entry.ip);
        self.socket.run(Message::route(body, NLM_F_CREATE | NLM_F_REPLACE, action))
    }

    /// Removes an entry; one that is not there is fine.
    pub fn remove_neighbour(&mut self, table: NeighbourTable, link: u32, entry: Neighbour) -> Result<()> {
        let body = RouteNetlinkMessage::DelNeighbour(message(table, link, entry));
        let action = format!("changing neighbour {}", entry.ip);
        self.socket.run(Message::route(body, 0, action)).tolerate(&[Errno::ENOENT])
    }

    /// The entries of a link that stay.
    pub fn neighbours(&mut self, table: NeighbourTable, link: u32) -> Result<Vec<Neighbour>> {
        let mut body = NeighbourMessage::default();
        if table == NeighbourTable::Forwarding {
            body.header.family = AddressFamily::Bridge;
        }
        let request =
            Message::route(RouteNetlinkMessage::GetNeighbour(body), NLM_F_DUMP, "listing neighbours");
        self.socket.list(request, |payload| parse(payload, link))
    }
}

fn message(table: NeighbourTable, link: u32, entry: Neighbour) -> NeighbourMessage {
    let (family, state, flags) = match table {
        NeighbourTable::Neighbours => {
            (AddressFamily::from(entry.ip), NeighbourState::Permanent, NeighbourFlags::empty())
        }
        NeighbourTable::Forwarding => {
            (AddressFamily::Bridge, NeighbourState::Other(NUD_PERMANENT | NUD_NOARP), NeighbourFlags::Own)
        }
    };
    let mut message = NeighbourMessage::default();
    message.header = NeighbourHeader { family, ifindex: link, state, flags, ..NeighbourHeader::default() };
    message.attributes = vec![
        NeighbourAttribute::Destination(entry.ip.into()),
        NeighbourAttribute::LinkLayerAddress(entry.mac.to_vec()),
    ];
    message
}

/// An entry of a link, if it stays.
fn parse(payload: &[u8], link: u32) -> Option<Neighbour> {
    let header = NeighbourHeader::parse(payload).ok()?;
    if header.ifindex != link || u16::from(header.state) & NUD_PERMANENT == 0 {
        return None;
    }
    let (mut ip, mut mac) = (None, None);
    for attribute in attributes(payload, HEADER) {
        match NeighbourAttribute::parse_with_param(&attribute, header.family) {
            Ok(NeighbourAttribute::Destination(address)) => ip = of(&address),
            Ok(NeighbourAttribute::LinkLayerAddress(bytes)) => mac = bytes.try_into().ok(),
            _ => {}
        }
    }
    Some(Neighbour { ip: ip?, mac: mac? })
}

fn of(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        NeighbourAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        // In the forwarding of a tunnel, only its length tells the family.
        NeighbourAddress::Other(bytes) => from_octets(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::route::octets;

    #[test]
    fn entries_on_the_wire() {
        use NeighbourTable::{Forwarding, Neighbours};

        // Family, state and flags of `struct ndmsg`.
        for (table, ip, family, state, flags) in [
            (Neighbours, "10.0.0.1", libc::AF_INET, NUD_PERMANENT, 0),
            (Neighbours, "fd00::1", libc::AF_INET6, NUD_PERMANENT, 0),
            (Forwarding, "192.0.2.1", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP, 2),
            (Forwarding, "fd00::2", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP, 2),
        ] {
            let entry = Neighbour { ip: ip.parse().unwrap(), mac: [2, 0, 0, 0, 0, 1] };
            let [low, high] = state.to_ne_bytes();
            let expected = Message::new(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, "")
                .raw(&[family as u8, 0, 0, 0])
                .raw(&7_u32.to_ne_bytes())
                .raw(&[low, high, flags, 0])
                .attr(1, &octets(entry.ip))
                .attr(2, &entry.mac);
            let body = RouteNetlinkMessage::NewNeighbour(message(table, 7, entry));
            let built = Message::route(body, NLM_F_CREATE | NLM_F_REPLACE, "");
            assert_eq!(built.bytes()[4..], expected.bytes()[4..], "{entry:?}");
            let payload = &built.bytes()[16..];
            assert_eq!((parse(payload, 7), parse(payload, 8)), (Some(entry), None));
        }
    }
}
