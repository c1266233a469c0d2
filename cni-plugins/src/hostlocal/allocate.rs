//! Address selection: round robin, so that a released address is reused as late as possible.

use std::net::IpAddr;

use super::{
    error::{HostLocalError, Result},
    range::{Range, RangeSet, address, number},
    store::Locked,
};
use crate::route::Cidr;

/// Allocates an address of a set: the requested one, or the next free one. Also returns its gateway.
pub fn get(
    lock: &Locked<'_>,
    set: &RangeSet,
    index: usize,
    requested: Option<IpAddr>,
    id: &str,
    ifname: &str,
) -> Result<(Cidr, IpAddr)> {
    let given = |range: &Range, ip: IpAddr| (Cidr { ip, prefix: range.subnet.prefix }, range.gateway);
    if let Some(ip) = requested {
        let Some(range) = set.0.iter().find(|range| range.contains(ip)) else {
            return Err(HostLocalError::OutOfRange { ip, set: set.clone() });
        };
        if ip == range.gateway {
            return Err(HostLocalError::Gateway { ip });
        }
        return match lock.reserve(ip, id, ifname, index)? {
            true => Ok(given(range, ip)),
            false => Err(HostLocalError::Taken { ip, set: set.clone() }),
        };
    }
    let held = lock.held_by(id, ifname)?;
    if let Some(ip) = held.into_iter().find(|ip| set.contains(*ip)) {
        return Err(HostLocalError::Duplicate { ip, id: id.to_owned() });
    }
    for (range, ip) in candidates(set, lock.last(index)) {
        if ip != range.gateway && !lock.taken(ip) && lock.reserve(ip, id, ifname, index)? {
            return Ok(given(range, ip));
        }
    }
    Err(HostLocalError::Exhausted { set: set.clone() })
}

/// Every address of the set once, beginning after the last one given out.
fn candidates(set: &RangeSet, last: Option<IpAddr>) -> impl Iterator<Item = (&Range, IpAddr)> {
    let at = last.and_then(|ip| set.0.iter().position(|range| range.contains(ip)));
    let (first, from) = match (at, last) {
        (Some(at), Some(ip)) => (at, number(ip) + 1),
        _ => (0, 0),
    };
    let count = set.0.len();
    let tail = set.0[first].numbers().skip_to(from).map(move |n| (first, n));
    let others = (1..count).flat_map(move |step| {
        let at = (first + step) % count;
        set.0[at].numbers().map(move |n| (at, n))
    });
    let head = set.0[first].numbers().take_while(move |n| *n < from).map(move |n| (first, n));
    tail.chain(others).chain(head).map(|(at, n)| (&set.0[at], address(n, set.0[at].start)))
}

trait SkipTo {
    fn skip_to(self, from: u128) -> std::ops::RangeInclusive<u128>;
}

impl SkipTo for std::ops::RangeInclusive<u128> {
    fn skip_to(self, from: u128) -> std::ops::RangeInclusive<u128> {
        (*self.start()).max(from)..=*self.end()
    }
}
