//! Address ranges of nodes: pieces of equal size of the cluster's range, each given to one node. No clock, no tasks.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, such as `10.42.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first address, as a number.
    base: u128,
    /// Bits of the network.
    bits: u32,
    /// 32 or 128.
    width: u32,
}

/// Text that is no range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid CIDR address: {0}")]
pub struct NotARange(String);

impl FromStr for Range {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotARange(text.into());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let bits: u32 = bits.parse().map_err(|_| wrong())?;
        let (base, width) = match address.parse().map_err(|_| wrong())? {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        if bits > width {
            return Err(wrong());
        }
        let host = width - bits;
        let base = if host == 128 { 0 } else { base >> host << host };
        Ok(Self { base, bits, width })
    }
}

impl Range {
    /// The range with one address.
    pub fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(ip) => Self { base: u128::from(u32::from(ip)), bits: 32, width: 32 },
            IpAddr::V6(ip) => Self { base: u128::from(ip), bits: 128, width: 128 },
        }
    }

    /// Whether all addresses of another range are in this one.
    pub fn contains(&self, other: &Self) -> bool {
        let host = self.width - self.bits;
        let same = host == 128 || other.base >> host == self.base >> host;
        self.width == other.width && self.bits <= other.bits && same
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.width == 32 {
            let ip = Ipv4Addr::from(u32::try_from(self.base).unwrap_or(u32::MAX));
            write!(f, "{ip}/{}", self.bits)
        } else {
            write!(f, "{}/{}", Ipv6Addr::from(self.base), self.bits)
        }
    }
}

/// A cluster's range cut into pieces, and which of them are taken.
#[derive(Debug, Clone)]
pub struct Pieces {
    whole: Range,
    bits: u32,
    taken: BTreeSet<u64>,
    /// Below this everything is taken.
    floor: u64,
}

impl Pieces {
    /// Cuts a range into pieces with `bits` of network; a range that is smaller is one piece.
    pub fn new(whole: Range, bits: u32) -> Self {
        let bits = bits.clamp(whole.bits, whole.width);
        Self { whole, bits, taken: BTreeSet::new(), floor: 0 }
    }

    fn count(&self) -> u64 {
        1u64.checked_shl(self.bits - self.whole.bits).unwrap_or(u64::MAX)
    }

    fn shift(&self) -> u32 {
        self.whole.width - self.bits
    }

    fn index(&self, piece: &str) -> Option<u64> {
        let range: Range = piece.parse().ok()?;
        let fits = range.width == self.whole.width && range.base >= self.whole.base;
        let index = range.base.checked_sub(self.whole.base)?.checked_shr(self.shift()).unwrap_or(0);
        u64::try_from(index).ok().filter(|i| fits && *i < self.count())
    }

    /// Marks a piece as allocated; ranges outside of the cluster range are ignored.
    pub fn take(&mut self, piece: &str) {
        if let Some(index) = self.index(piece) {
            self.taken.insert(index);
        }
    }

    /// Marks a piece as free.
    pub fn free(&mut self, piece: &str) {
        if let Some(index) = self.index(piece) {
            self.taken.remove(&index);
            self.floor = self.floor.min(index);
        }
    }

    /// Takes the first free piece; `None` when there is none.
    pub fn give(&mut self) -> Option<Range> {
        let mut index = self.floor;
        for taken in self.taken.range(self.floor..) {
            if *taken != index {
                break;
            }
            index += 1;
        }
        if index >= self.count() {
            return None;
        }
        self.floor = index;
        self.taken.insert(index);
        let offset = u128::from(index).checked_shl(self.shift()).unwrap_or(0);
        Some(Range { base: self.whole.base + offset, bits: self.bits, width: self.whole.width })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_given_in_order_and_again_when_free() {
        let mut pieces = Pieces::new("10.42.0.0/16".parse().unwrap(), 24);
        pieces.take("10.42.1.0/24");
        pieces.take("192.168.0.0/24");
        let mut next = || pieces.give().unwrap().to_string();
        assert_eq!([next(), next(), next()], ["10.42.0.0/24", "10.42.2.0/24", "10.42.3.0/24"]);
        pieces.free("10.42.2.0/24");
        assert_eq!(pieces.give().unwrap().to_string(), "10.42.2.0/24");
        assert_eq!(pieces.give().unwrap().to_string(), "10.42.4.0/24");
        let mut small = Pieces::new("fd00::/63".parse().unwrap(), 64);
        assert_eq!(small.give().unwrap().to_string(), "fd00::/64");
        assert_eq!(small.give().unwrap().to_string(), "fd00:0:0:1::/64");
        assert_eq!(small.give(), None);
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(wrong.parse::<Range>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_piece_is_given_twice(steps in prop::collection::vec((any::<bool>(), 0..64usize), 0..200)) {
            let mut pieces = Pieces::new("10.0.0.0/18".parse().unwrap(), 24);
            let mut held: Vec<String> = Vec::new();
            for (take, n) in steps {
                if take {
                    match pieces.give() {
                        Some(range) => {
                            let text = range.to_string();
                            prop_assert!(!held.contains(&text));
                            held.push(text);
                        }
                        None => prop_assert_eq!(held.len(), 64),
                    }
                } else if !held.is_empty() {
                    let text = held.swap_remove(n % held.len());
                    pieces.free(&text);
                }
            }
        }
    }
}
