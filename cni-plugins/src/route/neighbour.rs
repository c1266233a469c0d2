//! Neighbours: hardware addresses of addresses, and the tunnel end behind a hardware address.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{
    Route,
    address::{family, from_octets, octets},
};
use crate::netlink::{Attributes, Message, Result, Tolerate, u16_at, u32_at};

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
const NTF_SELF: u8 = 0x02;

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
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        self.socket.run(message(libc::RTM_NEWNEIGH, flags, table, link, entry))
    }

    /// Removes an entry; one that is not there is fine.
    pub fn remove_neighbour(&mut self, table: NeighbourTable, link: u32, entry: Neighbour) -> Result<()> {
        let request = message(libc::RTM_DELNEIGH, 0, table, link, entry);
        self.socket.run(request).tolerate(&[Errno::ENOENT])
    }

    /// The entries of a link that stay.
    pub fn neighbours(&mut self, table: NeighbourTable, link: u32) -> Result<Vec<Neighbour>> {
        let mut head = [0; 12];
        if table == NeighbourTable::Forwarding {
            head[0] = libc::AF_BRIDGE as u8;
        }
        let request =
            Message::new(libc::RTM_GETNEIGH, libc::NLM_F_DUMP as u16, "listing neighbours").raw(&head);
        let mut found = Vec::new();
        self.socket.query(request, |payload| {
            if u32_at(payload, 4) != link || u16_at(payload, 8) & NUD_PERMANENT == 0 {
                return;
            }
            let attributes = Attributes::new(payload.get(12..).unwrap_or_default());
            let ip = attributes.find_kind(NDA_DST).and_then(from_octets);
            let mac = attributes.find_kind(NDA_LLADDR).and_then(|mac| mac.try_into().ok());
            if let (Some(ip), Some(mac)) = (ip, mac) {
                found.push(Neighbour { ip, mac });
            }
        })?;
        Ok(found)
    }
}

/// `struct ndmsg` and what belongs together.
fn message(kind: u16, flags: u16, table: NeighbourTable, link: u32, entry: Neighbour) -> Message {
    let mut head = [0; 12];
    let (of, state) = match table {
        NeighbourTable::Neighbours => (family(entry.ip), NUD_PERMANENT),
        NeighbourTable::Forwarding => {
            head[10] = NTF_SELF;
            (libc::AF_BRIDGE as u8, NUD_PERMANENT | NUD_NOARP)
        }
    };
    head[0] = of;
    head[4..8].copy_from_slice(&link.to_ne_bytes());
    head[8..10].copy_from_slice(&state.to_ne_bytes());
    Message::new(kind, flags, format!("changing neighbour {}", entry.ip))
        .raw(&head)
        .attr(NDA_DST, &octets(entry.ip))
        .attr(NDA_LLADDR, &entry.mac)
}
