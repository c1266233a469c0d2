//! Deterministic interface names and MAC addresses.
//!
//! The host end of a container's link is named after the container, so that DEL finds it when namespace and result
//! are lost. Its MAC address is derived from its IP: the next container with that IP has the same MAC address, so that ARP
//! caches stay valid.

use std::net::IpAddr;

use crate::route::{Cidr, octets};

/// The host's end of an attachment's link.
pub fn host_veth(container_id: &str, ifname: &str) -> String {
    let hash = fnv(fnv(0xcbf2_9ce4_8422_2325, container_id.as_bytes()), &[b"\0", ifname.as_bytes()].concat());
    format!("veth{:011x}", hash & 0xfff_ffff_ffff)
}

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A locally administered address made of the last four bytes of the first IP.
pub fn mac_for(addresses: &[Cidr]) -> Option<[u8; 6]> {
    let first = addresses.iter().find(|a| a.ip.is_ipv4()).or(addresses.first())?;
    let bytes = octets(first.ip);
    let [a, b, c, d] = *bytes.last_chunk()?;
    Some([0x0a, 0x58, a, b, c, d])
}

/// The bridge's own address, fixed when it is made.
pub fn bridge_mac(name: &str, seed: u64) -> [u8; 6] {
    let [a, b, c, d, e, ..] = fnv(seed | 1, name.as_bytes()).to_be_bytes();
    [0x0a ^ (e & 0xf0), a, b, c, d, e]
}

/// The first address of a subnet.
pub fn first_address(subnet: Cidr) -> IpAddr {
    match subnet.network().ip {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() + 1).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() + 1).into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        let name = host_veth("0123456789abcdef", "eth0");
        assert_eq!(name.len(), 15);
        assert_ne!(name, host_veth("0123456789abcdef", "eth1"));
        assert_ne!(name, host_veth("0123456789abcde", "feth0"));
        assert_eq!(name, host_veth("0123456789abcdef", "eth0"));
    }

    #[test]
    fn macs_are_unicast_and_local() {
        for mac in
            [mac_for(&["10.1.2.3/24".parse().unwrap()]).unwrap(), bridge_mac("cni0", 7), bridge_mac("x", 99)]
        {
            assert_eq!(mac[0] & 3, 2, "{mac:x?}");
        }
        assert_eq!(mac_for(&["10.1.2.3/24".parse().unwrap()]), Some([0x0a, 0x58, 10, 1, 2, 3]));
        assert_eq!(mac_for(&[]), None);
    }
}
