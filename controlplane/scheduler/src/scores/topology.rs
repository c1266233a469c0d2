//! Scores by topology domain: preferred spread constraints and preferred affinity between pods.

use super::super::counts::NONE;
use super::super::pod::PodInfo;
use super::super::snapshot::{NodeId, Snapshot};
use super::FULL;

/// Indexes of the counts that a pod's preferred spread and affinity terms use.
#[derive(Debug, Default)]
pub struct TopologyScores {
    /// Spread constraints over domains of several nodes: index of the counts, weight of a pod, `maxSkew`.
    spread: Vec<(usize, f64, i64)>,
    /// The same for topologies in which each node is its own domain.
    per_node: Vec<usize>,
    /// The pod's preferred affinity terms: weight, and index of the counts.
    own: Vec<(i64, usize)>,
    /// Terms of other pods that match the pod.
    others: Vec<usize>,
    /// Weight of the required affinity of other pods.
    hard_affinity: i64,
    /// Whether preferences of other pods count.
    preferences: bool,
}

impl TopologyScores {
    /// Looks up the counts for the pod's terms and for those of other pods that match it.
    pub fn new(snapshot: &mut Snapshot, pod: &PodInfo) -> Self {
        let rules = pod.rules.as_deref();
        let preferences = !(rules.is_some_and(|r| r.ignores_preferences) && pod.preferred.is_empty());
        let hard_affinity = rules.map_or(1, |r| r.hard_affinity);
        let mut made = Self { hard_affinity, preferences, ..Self::default() };
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
        let about = |h: &super::super::counts::Holding| pod.matches(&h.term, &snapshot.namespaces);
        made.others = (0..snapshot.holdings().len()).filter(|at| about(&snapshot.holdings()[*at])).collect();
        made
    }

    /// Indexes of the topologies that these terms use.
    pub fn topologies(&self, snapshot: &Snapshot) -> Vec<usize> {
        let matching = self.spread.iter().map(|(at, ..)| at).chain(self.own.iter().map(|(_, at)| at));
        let matching = matching.map(|at| snapshot.matching_at(*at).topology);
        matching.chain(self.others.iter().map(|at| snapshot.holdings()[*at].topology)).collect()
    }

    /// Whether there are spread constraints over domains.
    pub fn spreads(&self) -> bool {
        !self.spread.is_empty()
    }

    /// Whether there are affinity terms.
    pub fn has_affinity(&self) -> bool {
        !(self.own.is_empty() && self.others.is_empty())
    }

    /// Weighted number of matching pods in the node's domains; less is better.
    pub fn spread_sum(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
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

    /// Score by the number of matching pods on the node itself: full for none, half for one, …
    pub fn per_node_spread(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
        let here: i64 = self.per_node.iter().map(|at| snapshot.matching_at(*at).tally.at_node(id)).sum();
        FULL / (1 + here.max(0))
    }

    /// Sum of the affinity weights of pods in the node's domains, less those of anti-affinity.
    pub fn affinity_sum(&self, snapshot: &Snapshot, id: NodeId) -> i64 {
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
                sum += self.hard_affinity * holding.bound.in_domain(domain);
                if self.preferences {
                    sum += holding.inclined.in_domain(domain);
                }
            }
        }
        sum
    }
}

/// Normalizes the spread sum: the smallest gets the highest score.
pub fn normalize_spread(value: i64, least: i64, most: i64) -> i64 {
    if most == 0 { FULL } else { FULL * (most + least - value) / most }
}

/// Normalizes the affinity sum to 0 … [`FULL`].
pub fn normalize_affinity(value: i64, least: i64, most: i64) -> i64 {
    if most == least { 0 } else { FULL * (value - least) / (most - least) }
}
