//! The address ranges of Services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A text that is not a range of addresses.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not an address range such as 10.96.0.0/16")]
pub struct RangeError(String);

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) base: IpAddr,
    pub(crate) bits: u8,
}

impl Range {
    /// Reads a range; bits of the address that are not of the network do not count.
    pub(crate) fn parse(text: &str) -> Result<Self, RangeError> {
        let bad = || RangeError(text.to_owned());
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let (base, bits): (IpAddr, u8) =
            (address.parse().map_err(|_| bad())?, bits.parse().map_err(|_| bad())?);
        let width = if base.is_ipv4() { 32 } else { 128 };
        if bits > width - 2 {
            return Err(bad());
        }
        let base = match base {
            IpAddr::V4(ip) => {
                let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & !host).into()
            }
            IpAddr::V6(ip) => {
                let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & !host).into()
            }
        };
        Ok(Self { base, bits })
    }

    /// How many addresses may be handed out; at most 2^16 are used of a large range.
    pub(crate) fn size(&self) -> u128 {
        let host = if self.base.is_ipv4() { 32 - self.bits } else { 128 - self.bits };
        if host >= 16 { 1 << 16 } else { 1 << host }
    }

    pub(crate) fn at(&self, offset: u128) -> IpAddr {
        match self.base {
            IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().wrapping_add(offset as u32)).into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().wrapping_add(offset)).into(),
        }
    }

    /// Whether a Service may ask for this address: neither the network's own nor, of IPv4, that of everybody.
    pub(crate) fn is_assignable(&self, address: IpAddr) -> bool {
        let last = match address {
            IpAddr::V4(ip) => {
                ip.to_bits() | u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0) == u32::MAX
            }
            IpAddr::V6(_) => false,
        };
        self.contains(address) && address != self.base && !last
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.bits);
                base.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.bits);
                base.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

/// The ranges of cluster IPs, one per family.
pub struct ServiceRanges {
    pub(crate) ranges: Vec<Range>,
}

impl ServiceRanges {
    /// With one range per family, comma separated.
    pub fn new(cidrs: &str) -> Result<Self, RangeError> {
        Ok(Self { ranges: cidrs.split(',').map(|c| Range::parse(c.trim())).collect::<Result<_, _>>()? })
    }

    /// Whether an address is one of Services.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// The first address of the first range, the `kubernetes` Service's.
    pub fn first(&self) -> IpAddr {
        self.ranges[0].at(1)
    }

    /// The addresses of the cluster's DNS, by convention the tenth of each range; none in a range that is too small.
    pub fn dns(&self) -> Vec<IpAddr> {
        let tenth = |range: &Range| Some(range.at(10)).filter(|address| range.contains(*address));
        self.ranges.iter().map_while(tenth).collect()
    }
}
