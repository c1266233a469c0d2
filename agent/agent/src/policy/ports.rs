//! The ports of one entry of a policy, by the way they are matched. Pure.

use coracle_cni::nft::{Expr, Meta, Verdict, reg};
use std::collections::{BTreeMap, BTreeSet};

use super::model::{PortMatch, PortRule};
use crate::cluster::Protocol;

/// A rule of matches and a verdict.
pub(super) fn ending(mut matches: Vec<Expr>, verdict: Verdict) -> Vec<Expr> {
    matches.push(Expr::Verdict(verdict));
    matches
}

/// First and last port of a range.
type Ports = (u16, u16);

/// The ports that are allowed.
#[derive(Debug, Default)]
pub(super) struct AllowedPorts<'a> {
    /// Protocols of which every port is allowed.
    pub any: BTreeSet<Protocol>,
    /// Ranges of other protocols.
    pub ranges: BTreeMap<Protocol, Vec<Ports>>,
    /// Names of ports.
    pub names: BTreeSet<(&'a str, Protocol)>,
}

impl<'a> AllowedPorts<'a> {
    /// Sorts the ports of an entry.
    pub fn new(ports: &'a [PortRule]) -> Self {
        let mut wanted = AllowedPorts::default();
        for PortRule { protocol, port } in ports {
            match port {
                PortMatch::Any => {
                    wanted.any.insert(*protocol);
                }
                PortMatch::Range(first, last) => {
                    wanted.ranges.entry(*protocol).or_default().push((*first, *last));
                }
                PortMatch::Named(name) => {
                    wanted.names.insert((&**name, *protocol));
                }
            }
        }
        let AllowedPorts { any, ranges, .. } = &mut wanted;
        ranges.retain(|protocol, _| !any.contains(protocol));
        wanted
    }
}

/// The rules of a chain that returns unless the packet's port is in one of the ranges, and then goes on to `then`.
pub(super) fn gate(ranges: &BTreeMap<Protocol, Vec<Ports>>, then: Verdict) -> Vec<Vec<Expr>> {
    let mut other_protocol = vec![Expr::Meta { key: Meta::L4Proto, to: reg(0) }];
    other_protocol.extend(ranges.keys().map(|protocol| Expr::Compare {
        from: reg(0),
        equal: false,
        value: vec![protocol.number()],
    }));
    let mut rules = vec![ending(other_protocol, Verdict::Return)];
    for (protocol, ranges) in ranges {
        let gaps = gaps(ranges).into_iter();
        rules.extend(gaps.map(|gap| ending(port_within(*protocol, gap), Verdict::Return)));
    }
    // A fragment without a port is in no gap. Reading the port ends the rule for it, so it is not allowed either.
    rules.push(ending(vec![Expr::destination_port(reg(0))], then));
    rules
}

/// The ranges of ports between, before and after some ranges.
fn gaps(ranges: &[Ports]) -> Vec<Ports> {
    let mut sorted: Vec<Ports> = ranges.iter().copied().filter(|(first, last)| first <= last).collect();
    sorted.sort_unstable();
    let mut gaps = Vec::new();
    // The lowest port that no range has reached yet; `None` once the last port is reached.
    let mut next = Some(0_u16);
    for (first, last) in sorted {
        let Some(from) = next else { break };
        if first > from {
            gaps.push((from, first - 1));
        }
        if last >= from {
            next = last.checked_add(1);
        }
    }
    gaps.extend(next.map(|from| (from, u16::MAX)));
    gaps
}

/// Whether the packet is of a protocol.
pub(super) fn protocol_is(protocol: Protocol) -> Vec<Expr> {
    vec![
        Expr::Meta { key: Meta::L4Proto, to: reg(0) },
        Expr::Compare { from: reg(0), equal: true, value: vec![protocol.number()] },
    ]
}

/// Whether the packet is for a port of a range.
pub(super) fn port_within(protocol: Protocol, (first, last): Ports) -> Vec<Expr> {
    let (from, to) = (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
    let mut all = protocol_is(protocol);
    all.push(Expr::destination_port(reg(0)));
    all.push(match first == last {
        true => Expr::Compare { from: reg(0), equal: true, value: from },
        false => Expr::Range { register: reg(0), from, to },
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_no_range_has() {
        for (ranges, want) in [
            (&[][..], vec![(0, 65535)]),
            (&[(0, 65535)][..], vec![]),
            (&[(80, 80)][..], vec![(0, 79), (81, 65535)]),
            (&[(443, 443), (80, 90), (85, 100), (101, 101)][..], vec![(0, 79), (102, 442), (444, 65535)]),
            (&[(1, 100), (5, 10), (65535, 65535)][..], vec![(0, 0), (101, 65534)]),
            (&[(90, 80)][..], vec![(0, 65535)]),
        ] {
            assert_eq!(gaps(ranges), want, "{ranges:?}");
        }
    }
}
