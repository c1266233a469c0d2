//! Neighbours: hardware addresses of addresses, and the tunnel end behind a hardware address.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_DUMP, ParseableParametrized};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage},
};

use super::{Route, address::from_octets, attributes};
use crate::netlink::{Message, Result};

/// Length of `struct ndmsg`.
const HEADER: usize = 12;
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

    const NUD_NOARP: u16 = 0x40;

    #[test]
    fn entries_are_read() {
        // Family and state of `struct ndmsg`.
        for (ip, family, state) in [
            ("10.0.0.1", libc::AF_INET, NUD_PERMANENT),
            ("fd00::1", libc::AF_INET6, NUD_PERMANENT),
            ("192.0.2.1", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP),
            ("fd00::2", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP),
        ] {
            let entry = Neighbour { ip: ip.parse().unwrap(), mac: [2, 0, 0, 0, 0, 1] };
            let wire = |state: u16| {
                let [low, high] = state.to_ne_bytes();
                Message::new(libc::RTM_NEWNEIGH, 0, "")
                    .raw(&[family as u8, 0, 0, 0])
                    .raw(&7_u32.to_ne_bytes())
                    .raw(&[low, high, 0, 0])
                    .attr(1, &octets(entry.ip))
                    .attr(2, &entry.mac)
            };
            let wire_of_entry = wire(state);
            let payload = &wire_of_entry.bytes()[16..];
            assert_eq!((parse(payload, 7), parse(payload, 8)), (Some(entry), None));
            assert_eq!(parse(&wire(NUD_NOARP).bytes()[16..], 7), None, "it does not stay");
        }
    }
}
