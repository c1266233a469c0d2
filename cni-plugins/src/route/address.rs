//! Addresses of links.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Parseable};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeader, AddressHeaderFlags, AddressMessage},
};
use nix::errno::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Route, attributes};
use crate::netlink::{Message, Result, Tolerate};

/// Length of `struct ifaddrmsg`.
const HEADER: usize = 8;

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    /// The address, host bits included.
    pub ip: IpAddr,
    /// Length of the prefix.
    pub prefix: u8,
}

/// Not `address/prefix`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid CIDR address: {0}")]
pub struct InvalidCidr(String);

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let bad = || InvalidCidr(text.to_owned());
        let (ip, prefix) = text.split_once('/').ok_or_else(bad)?;
        let cidr = Cidr { ip: ip.parse().map_err(|_| bad())?, prefix: prefix.parse().map_err(|_| bad())? };
        if cidr.prefix > cidr.bits() { Err(bad()) } else { Ok(cidr) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Cidr {
    /// 32 or 128.
    pub fn bits(&self) -> u8 {
        if self.ip.is_ipv4() { 32 } else { 128 }
    }

    /// The same prefix with host bits zero.
    pub fn network(&self) -> Cidr {
        let ip = match self.ip {
            IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask4(self.prefix))),
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask6(self.prefix))),
        };
        Cidr { ip, prefix: self.prefix }
    }

    /// Whether the prefix covers an address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Cidr { ip, prefix: self.prefix }.network() == self.network()
    }

    /// The prefix as a mask of the family's length.
    pub fn mask(&self) -> Vec<u8> {
        match self.ip {
            IpAddr::V4(_) => mask4(self.prefix).to_be_bytes().to_vec(),
            IpAddr::V6(_) => mask6(self.prefix).to_be_bytes().to_vec(),
        }
    }
}

fn mask4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// The bytes of an address.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// An address from its bytes, 4 or 16.
pub fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

impl Route {
    /// Adds addresses; those already there are fine. IPv6 addresses are usable at once, without duplicate detection:
    /// IPAM has already made sure.
    pub fn add_addresses(&mut self, link: u32, addresses: &[Cidr]) -> Result<()> {
        addresses.iter().try_for_each(|address| self.add_new_address(link, *address).map(drop))
    }

    /// Adds one address; false when it was already there.
    pub fn add_new_address(&mut self, link: u32, address: Cidr) -> Result<bool> {
        let body = RouteNetlinkMessage::NewAddress(new_address(link, address));
        let action = format!("adding address {address}");
        match self.socket.run(Message::route(body, NLM_F_CREATE | NLM_F_EXCL, action)) {
            Err(e) if e.errno() == Some(Errno::EEXIST) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Removes an address; one that is not there is fine.
    pub fn remove_address(&mut self, link: u32, address: Cidr) -> Result<()> {
        let attributes = vec![AddressAttribute::Local(address.ip)];
        let body = message(link, address, AddressHeaderFlags::empty(), attributes);
        let action = format!("removing address {address}");
        self.socket
            .run(Message::route(RouteNetlinkMessage::DelAddress(body), 0, action))
            .tolerate(&[Errno::EADDRNOTAVAIL])
    }

    /// All addresses of a link.
    pub fn addresses(&mut self, link: u32) -> Result<Vec<Cidr>> {
        let body = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.socket.list(Message::route(body, NLM_F_DUMP, "listing addresses"), |payload| {
            parse(payload).filter(|(index, _)| *index == link).map(|(_, address)| address)
        })
    }
}

fn message(
    link: u32,
    address: Cidr,
    flags: AddressHeaderFlags,
    attributes: Vec<AddressAttribute>,
) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        family: address.ip.into(),
        prefix_len: address.prefix,
        flags,
        index: link,
        ..AddressHeader::default()
    };
    message.attributes = attributes;
    message
}

fn new_address(link: u32, address: Cidr) -> AddressMessage {
    let mut attributes = vec![AddressAttribute::Local(address.ip), AddressAttribute::Address(address.ip)];
    if let IpAddr::V4(ip) = address.ip
        && address.prefix < 31
    {
        let broadcast = ip.to_bits() | !mask4(address.prefix);
        attributes.push(AddressAttribute::Broadcast(Ipv4Addr::from_bits(broadcast)));
    }
    let flags = if address.ip.is_ipv6() { AddressHeaderFlags::Nodad } else { AddressHeaderFlags::empty() };
    message(link, address, flags, attributes)
}

/// An address and the index of its link.
fn parse(payload: &[u8]) -> Option<(u32, Cidr)> {
    let header = AddressHeader::parse(payload).ok()?;
    let (mut local, mut address) = (None, None);
    for attribute in attributes(payload, HEADER) {
        match AddressAttribute::parse(&attribute) {
            Ok(AddressAttribute::Local(ip)) => local = Some(ip),
            Ok(AddressAttribute::Address(ip)) => address = Some(ip),
            _ => {}
        }
    }
    // On a link between two, `Address` is that of the other end.
    Some((header.index, Cidr { ip: local.or(address)?, prefix: header.prefix_len }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prefixes() {
        for (text, network, inside, outside) in [
            ("10.1.2.3/16", "10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.2.3/32", "10.1.2.3/32", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::1:2/112", "fd00::1:0/112", "fd00::1:ffff", "fd00::2:0"),
            ("::/0", "::/0", "fd00::1", "1.1.1.1"),
        ] {
            let cidr: Cidr = text.parse().unwrap();
            assert_eq!(cidr.network().to_string(), network);
            assert!(cidr.contains(inside.parse().unwrap()), "{text}");
            assert!(!cidr.contains(outside.parse().unwrap()), "{text}");
        }
        for bad in ["10.0.0.1", "10.0.0.1/33", "x/1", "fd00::/129", "/1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_on_the_wire() {
        // `struct ifaddrmsg` and attributes as <linux/if_addr.h> has them.
        for (text, head, broadcast) in [
            ("10.1.2.3/16", [2_u8, 16, 0, 0], Some([10_u8, 1, 255, 255])),
            ("10.1.2.3/31", [2, 31, 0, 0], None),
            ("fd00::3/64", [10, 64, 2, 0], None),
        ] {
            let cidr: Cidr = text.parse().unwrap();
            let ip = octets(cidr.ip);
            let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
            let mut expected = Message::new(libc::RTM_NEWADDR, flags, "")
                .raw(&head)
                .raw(&7_u32.to_ne_bytes())
                .attr(2, &ip)
                .attr(1, &ip);
            if let Some(broadcast) = broadcast {
                expected = expected.attr(4, &broadcast);
            }
            let body = RouteNetlinkMessage::NewAddress(new_address(7, cidr));
            let built = Message::route(body, NLM_F_CREATE | NLM_F_EXCL, "");
            assert_eq!(built.bytes()[4..], expected.bytes()[4..], "{text}");
            assert_eq!(parse(&built.bytes()[16..]), Some((7, cidr)));
        }
        assert_eq!(parse(&[2, 16]), None);
    }
}
