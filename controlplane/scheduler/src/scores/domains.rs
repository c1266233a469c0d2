//! Scores that a whole domain shares: even spread, and neighbours that are liked or not.

use super::super::counts::NONE;
use super::super::pod::PodInfo;
use super::super::snapshot::{NodeId, Snapshot};
use super::FULL;

/// Places of the counts that matter for a pod's soft rules.
#[derive(Debug, Default)]
pub struct Soft {
    /// Soft spread constraints over domains of several nodes: counts, weight of a pod, skew that is free.
    spread: Vec<(usize, f64, i64)>,
    /// The same for topologies in which each node is its own domain.
    per_node: Vec<usize>,
    /// The pod's preferences: weight and counts.
    own: Vec<(i64, usize)>,
    /// Preferences of others about the pod.
    others: Vec<usize>,
}

impl Soft {
    /// Looks up counts for a pod's soft rules and for those of others about it.
    pub fn new(snapshot: &mut Snapshot, pod: &PodInfo) -> Self {
        let mut made = Self::default();
        for spread in pod.spread.iter().filter(|s| !s.hard) {
            let at = snapshot.matching(&spread.term);
            let topology = snapshot.topology_at(snapshot.matching_at(at).topology);
            if topology.is_per_node() {
                made.per_node.push(at);
            } else {
                let domains = topology.sizes.iter().filter(|n| **n > 0).count();
                made.spread.push((at, ((domains + 2) as f64).ln(), spread.max_skew));
            }
        }
        made.own = pod.preferred.iter().map(|(weight, term)| (*weight, snapshot.matching(term))).collect();
        let about = |h: &super::super::counts::Holding| h.term.matches(pod, &snapshot.namespaces);
        made.others = (0..snapshot.holdings().len()).filter(|at| about(&snapshot.holdings()[*at])).collect();
        made
    }

    /// Topologies that matter, as places.
    pub fn topologies(&self, snapshot: &Snapshot) -> Vec<usize> {
        let matching = self.spread.iter().map(|(at, ..)| at).chain(self.own.iter().map(|(_, at)| at));
        let matching = matching.map(|at| snapshot.matching_at(*at).topology);
        matching.chain(self.others.iter().map(|at| snapshot.holdings()[*at].topology)).collect()
    }

    /// Whether spread over domains is to be scored.
    pub fn spreads(&self) -> bool {
        !self.spread.is_empty()
    }

    /// Whether neighbours are to be scored.
    pub fn has_neighbours(&self) -> bool {
        !(self.own.is_empty() && self.others.is_empty())
    }

    /// How crowded the node's domains are with pods that should be spread; less is better.
    pub fn crowding(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
        let mut sum = 0.0;
        for (at, weight, max_skew) in &self.spread {
            let matching = snapshot.matching_at(*at);
            let domain = snapshot.topology_at(matching.topology).domain(id);
            if domain != NONE {
                sum += matching.tally.in_domain(domain) as f64 * weight + (max_skew - 1) as f64;
            }
        }
        sum.round() as i64
    }

    /// How few of the pods that should be spread are on the node itself: full for none, half for one, …
    pub fn roominess(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
        let here: i64 = self.per_node.iter().map(|at| snapshot.matching_at(*at).tally.at_node(id)).sum();
        FULL / (1 + here.max(0))
    }

    /// Sum of weights of neighbours in the node's domains that are liked, less those that are not.
    pub fn company(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
        let mut sum = 0;
        for (weight, at) in &self.own {
            let matching = snapshot.matching_at(*at);
            let domain = snapshot.topology_at(matching.topology).domain(id);
            if domain != NONE {
                sum += weight * matching.tally.in_domain(domain);
            }
        }
        for at in &self.others {
            let holding = &snapshot.holdings()[*at];
            let domain = snapshot.topology_at(holding.topology).domain(id);
            if domain != NONE {
                sum += holding.inclined.in_domain(domain) + holding.bound.in_domain(domain);
            }
        }
        sum
    }
}

/// Scales crowding so that the least crowded is best.
pub fn scale_crowding(value: i64, least: i64, most: i64) -> i64 {
    if most == 0 { FULL } else { FULL * (most + least - value) / most }
}

/// Scales company so that the best is full and the worst nothing.
pub fn scale_company(value: i64, least: i64, most: i64) -> i64 {
    if most == least { 0 } else { FULL * (value - least) / (most - least) }
}
