//! Ranges: the part of a subnet addresses are taken from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use crate::route::Cidr;

/// Why a range or a set of ranges is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Without an address between those of the network and of broadcasts.
    #[error("network {subnet} too small to allocate from")]
    Small {
        /// The subnet as given.
        subnet: Cidr,
    },
    /// The address of a host instead of a network.
    #[error(
        "network has host bits set. For a subnet mask of length {} the network address is {}",
        subnet.prefix,
        subnet.network().ip
    )]
    HostBits {
        /// The subnet as given.
        subnet: Cidr,
    },
    /// A range that reaches out of its subnet.
    #[error("{what} {ip} not in network {subnet}")]
    Outside {
        /// `RangeStart` or `RangeEnd`.
        what: &'static str,
        /// The ip as given.
        ip: IpAddr,
        /// The subnet as given.
        subnet: Cidr,
    },
    /// A range that ends before it begins.
    #[error("RangeStart {start} is after RangeEnd {end}")]
    Backwards {
        /// First address.
        start: IpAddr,
        /// Last address.
        end: IpAddr,
    },
    /// A gateway of IPv4 in a subnet of IPv6, or the other way round.
    #[error("gateway {gateway} is not of the family of {subnet}")]
    GatewayFamily {
        /// The gateway as given.
        gateway: IpAddr,
        /// The subnet as given.
        subnet: Cidr,
    },
    /// A set without ranges.
    #[error("empty range set")]
    Empty,
    /// A set with ranges of IPv4 and of IPv6.
    #[error("mixed address families")]
    MixedFamilies,
    /// Two ranges of a set could give out the same address.
    #[error("subnets {first} and {second} overlap")]
    Overlap {
        /// Of one range.
        first: Cidr,
        /// Of the other.
        second: Cidr,
    },
}

/// A range as configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeConfig {
    /// The subnet.
    pub subnet: Cidr,
    /// First address; the subnet's first usable one by default.
    #[serde(default)]
    pub range_start: Option<IpAddr>,
    /// Last address; the subnet's last usable one by default.
    #[serde(default)]
    pub range_end: Option<IpAddr>,
    /// Never given out; the subnet's first address by default.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
}

/// A range with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The subnet, host bits zero.
    pub subnet: Cidr,
    /// First address.
    pub start: IpAddr,
    /// Last address.
    pub end: IpAddr,
    /// Never given out.
    pub gateway: IpAddr,
}

/// Addresses as numbers.
pub fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The number as an address of the family of `like`.
pub fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

impl Range {
    /// Fills in defaults and validates.
    pub fn new(config: &RangeConfig) -> Result<Self, RangeError> {
        let subnet = config.subnet;
        if subnet.prefix > subnet.bits() - 2 {
            return Err(RangeError::Small { subnet });
        }
        if subnet != subnet.network() {
            return Err(RangeError::HostBits { subnet });
        }
        let first = number(subnet.ip) + 1;
        let size = u128::MAX.checked_shr(128 - u32::from(subnet.bits() - subnet.prefix)).unwrap_or(0);
        // The last address of an IPv4 subnet is its broadcast address.
        let last = number(subnet.ip) + size - u128::from(subnet.ip.is_ipv4());
        let within = |ip: IpAddr, what: &'static str| match subnet.contains(ip) {
            true => Ok(ip),
            false => Err(RangeError::Outside { what, ip, subnet }),
        };
        let start = within(config.range_start.unwrap_or(address(first, subnet.ip)), "RangeStart")?;
        let end = within(config.range_end.unwrap_or(address(last, subnet.ip)), "RangeEnd")?;
        if number(start) > number(end) {
            return Err(RangeError::Backwards { start, end });
        }
        // The all-zeros address is never allocated.
        let start = if number(start) < first { address(first, subnet.ip) } else { start };
        let gateway = config.gateway.unwrap_or(address(first, subnet.ip));
        if gateway.is_ipv4() != subnet.ip.is_ipv4() {
            return Err(RangeError::GatewayFamily { gateway, subnet });
        }
        Ok(Range { subnet, start, end, gateway })
    }

    /// Whether an address may be given out from here.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.start.is_ipv4() && (number(self.start)..=number(self.end)).contains(&number(ip))
    }

    /// Addresses, as numbers.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u128> {
        number(self.start)..=number(self.end)
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.contains(other.start) || self.contains(other.end) || other.contains(self.start)
    }
}

/// Ranges of one family, of which every container gets one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(pub Vec<Range>);

impl RangeSet {
    /// Checks that the ranges belong together.
    pub fn new(configs: &[RangeConfig]) -> Result<Self, RangeError> {
        let ranges = configs.iter().map(Range::new).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = ranges.first() else { return Err(RangeError::Empty) };
        if ranges.iter().any(|r| r.start.is_ipv4() != first.start.is_ipv4()) {
            return Err(RangeError::MixedFamilies);
        }
        for (at, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[at + 1..].iter().find(|other| range.overlaps(other)) {
                return Err(RangeError::Overlap { first: range.subnet, second: other.subnet });
            }
        }
        Ok(RangeSet(ranges))
    }

    /// Whether an address may be given out from here.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(ip))
    }

    /// Whether two sets could give out the same address.
    pub fn overlaps(&self, other: &RangeSet) -> bool {
        self.0.iter().any(|a| other.0.iter().any(|b| a.overlaps(b)))
    }
}

impl std::fmt::Display for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|r| format!("{}-{}", r.start, r.end)).collect();
        f.write_str(&parts.join(","))
    }
}
