//! Which address is next: round robin, so that an address rests as long as possible before it is used again.

use std::net::IpAddr;

use super::{
    range::{Range, RangeSet, address, number},
    store::Locked,
};
use crate::{
    protocol::{Error, Result},
    route::Cidr,
};

/// Takes an address from a set: the requested one, or the next that is free. Its gateway too.
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
            return Err(Error::internal(format!("requested IP address {ip} is not in range set {set}")));
        };
        if ip == range.gateway {
            return Err(Error::internal(format!("requested ip {ip} is subnet's gateway")));
        }
        return match lock.reserve(ip, id, ifname, index)? {
            true => Ok(given(range, ip)),
            false => {
                Err(Error::internal(format!("requested IP address {ip} is not available in range set {set}")))
            }
        };
    }
    let held = lock.held_by(id, ifname)?;
    if let Some(ip) = held.into_iter().find(|ip| set.contains(*ip)) {
        return Err(Error::internal(format!(
            "{ip} has been allocated to {id}, duplicate allocation is not allowed"
        )));
    }
    for (range, ip) in candidates(set, lock.last(index)) {
        if ip != range.gateway && !lock.taken(ip) && lock.reserve(ip, id, ifname, index)? {
            return Ok(given(range, ip));
        }
    }
    Err(Error::internal(format!("no IP addresses available in range set: {set}")))
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
