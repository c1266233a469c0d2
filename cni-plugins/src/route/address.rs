//! Addresses of links.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use nix::errno::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Route;
use crate::netlink::{Attributes, Message, Result, Tolerate, u32_at};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_F_NODAD: u8 = 0x02;

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
pub struct BadCidr(String);

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.to_owned());
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

pub(super) fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

impl Route {
    /// Adds addresses; those already there are fine. IPv6 addresses are usable at once, without duplicate detection:
    /// IPAM has already made sure.
    pub fn add_addresses(&mut self, link: u32, addresses: &[Cidr]) -> Result<()> {
        addresses.iter().try_for_each(|address| self.add_new_address(link, *address).map(drop))
    }

    /// Adds one address; false when it was already there.
    pub fn add_new_address(&mut self, link: u32, address: Cidr) -> Result<bool> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let bytes = octets(address.ip);
        let flag = if address.ip.is_ipv6() { IFA_F_NODAD } else { 0 };
        let mut message = Message::new(libc::RTM_NEWADDR, flags, format!("adding address {address}"))
            .raw(&header(address, flag, link))
            .attr(IFA_LOCAL, &bytes)
            .attr(IFA_ADDRESS, &bytes);
        if let IpAddr::V4(ip) = address.ip
            && address.prefix < 31
        {
            let broadcast = ip.to_bits() | !mask4(address.prefix);
            message = message.attr(IFA_BROADCAST, &broadcast.to_be_bytes());
        }
        match self.socket.run(message) {
            Err(e) if e.errno() == Some(Errno::EEXIST) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Removes an address; one that is not there is fine.
    pub fn remove_address(&mut self, link: u32, address: Cidr) -> Result<()> {
        let message = Message::new(libc::RTM_DELADDR, 0, format!("removing address {address}"))
            .raw(&header(address, 0, link))
            .attr(IFA_LOCAL, &octets(address.ip));
        self.socket.run(message).tolerate(&[Errno::EADDRNOTAVAIL])
    }

    /// All addresses of a link.
    pub fn addresses(&mut self, link: u32) -> Result<Vec<Cidr>> {
        let mut found = Vec::new();
        let message =
            Message::new(libc::RTM_GETADDR, libc::NLM_F_DUMP as u16, "listing addresses").raw(&[0; 8]);
        self.socket.query(message, |payload| {
            if u32_at(payload, 4) != link {
                return;
            }
            let attributes = Attributes::new(payload.get(8..).unwrap_or_default());
            let ip =
                attributes.find_kind(IFA_LOCAL).or(attributes.find_kind(IFA_ADDRESS)).and_then(from_octets);
            let prefix = payload.get(1).copied().unwrap_or(0);
            found.extend(ip.map(|ip| Cidr { ip, prefix }));
        })?;
        Ok(found)
    }
}

/// `struct ifaddrmsg`.
fn header(address: Cidr, flags: u8, link: u32) -> [u8; 8] {
    let [a, b, c, d] = link.to_ne_bytes();
    [family(address.ip), address.prefix, flags, 0, a, b, c, d]
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
}
