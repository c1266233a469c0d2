//! Removes conntrack entries whose destination is gone.
//!
//! NAT is decided by the first packet of a connection. UDP has no end of connection, so a client that keeps sending is
//! translated to a dead endpoint until the entry is removed.

use std::net::IpAddr;

use nix::errno::Errno;

use crate::{
    netlink::{Attributes, Message, Protocol, Result, Socket, Tolerate},
    route::from_octets,
};

const GET: u16 = 1;
const DELETE: u16 = 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
/// `IPPROTO_UDP`.
pub const UDP: u8 = 17;

/// A tracked connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its protocol's number.
    pub protocol: u8,
    /// Source address and port.
    pub source: (IpAddr, u16),
    /// Destination before NAT.
    pub destination: (IpAddr, u16),
    /// Destination after NAT.
    pub answered_by: (IpAddr, u16),
    tuple: Vec<u8>,
    id: Option<Vec<u8>>,
}

/// The connection table of the network namespace it was opened in.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
}

impl Conntrack {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self> {
        Ok(Conntrack { socket: Socket::open(Protocol::Netfilter)? })
    }

    /// Removes the entries for which `doomed` is true; returns how many. An entry that ended meanwhile is no error.
    pub fn remove(&mut self, v4: bool, doomed: impl Fn(&Flow) -> bool) -> Result<usize> {
        let family = if v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
        let mut found = Vec::new();
        let request = message(GET, libc::NLM_F_DUMP as u16, family, "listing connections");
        self.socket.query(request, |payload| {
            let flow = Flow::parse(payload.get(4..).unwrap_or_default());
            found.extend(flow.filter(|flow| doomed(flow)));
        })?;
        for flow in &found {
            let mut request = message(DELETE, 0, family, "removing a connection")
                .nest(TUPLE_ORIGINAL, |m| m.raw(&flow.tuple));
            if let Some(id) = &flow.id {
                request = request.attr(ID, id);
            }
            self.socket.run(request).tolerate(&[Errno::ENOENT])?;
        }
        Ok(found.len())
    }
}

impl Flow {
    fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = Attributes::new(payload);
        let tuple = attributes.find_kind(TUPLE_ORIGINAL)?;
        let (protocol, source, destination) = parse_tuple(tuple)?;
        let (_, answered_by, _) = parse_tuple(attributes.find_kind(TUPLE_REPLY)?)?;
        let id = attributes.find_kind(ID).map(<[u8]>::to_vec);
        Some(Flow { protocol, source, destination, answered_by, tuple: tuple.to_vec(), id })
    }
}

type End = (IpAddr, u16);

fn parse_tuple(tuple: &[u8]) -> Option<(u8, End, End)> {
    let attributes = Attributes::new(tuple);
    let ip = Attributes::new(attributes.find_kind(1)?);
    let proto = Attributes::new(attributes.find_kind(2)?);
    // 1 and 2 are source and destination of IPv4, 3 and 4 of IPv6.
    let address = |v4: u16, v6: u16| ip.find_kind(v4).or_else(|| ip.find_kind(v6)).and_then(from_octets);
    let port = |kind: u16| {
        proto.find_kind(kind).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes)
    };
    let number = *proto.find_kind(1)?.first()?;
    Some((number, (address(1, 3)?, port(2)), (address(2, 4)?, port(3))))
}

fn message(kind: u16, flags: u16, family: u8, action: &str) -> Message {
    let kind = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8 | kind;
    Message::new(kind, flags, action).raw(&[family, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tuple(m: Message, from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Message {
        m.nest(1, |m| m.attr(1, &from).attr(2, &to))
            .nest(2, |m| m.attr(1, &[UDP]).attr(2, &ports.0.to_be_bytes()).attr(3, &ports.1.to_be_bytes()))
    }

    #[test]
    fn a_translated_flow_is_read() {
        let client = [10, 0, 0, 1];
        let bytes = Message::new(0, 0, "x")
            .nest(TUPLE_ORIGINAL, |m| tuple(m, client, [10, 96, 0, 9], (4000, 53)))
            .nest(TUPLE_REPLY, |m| tuple(m, [10, 0, 0, 7], client, (5353, 4000)))
            .attr(ID, &[0, 0, 0, 9]);
        let bytes = bytes.bytes().to_vec();
        let flow = Flow::parse(&bytes[16..]).unwrap();
        assert_eq!(flow.protocol, UDP);
        assert_eq!(flow.destination, ([10, 96, 0, 9].into(), 53));
        assert_eq!(flow.answered_by, ([10, 0, 0, 7].into(), 5353));
        assert!(Flow::parse(&bytes[20..]).is_none());
    }
}
