//! Topology spread constraints that must hold: no domain may get further ahead of the emptiest one than `maxSkew`.

use super::super::counts::NONE;
use super::super::pod::{PodInfo, Spread};
use super::super::snapshot::{NodeId, Snapshot};
use super::{placement, taints};
use crate::rejection::{Plugin, Rejection};

/// A pod's hard constraints with their counts.
#[derive(Debug, Default)]
pub struct RequiredSpread {
    constraints: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    topology: usize,
    per_node: bool,
    max_skew: i64,
    /// 1 when the pod counts for its own constraint.
    own: i64,
    least: i64,
    /// Pods per domain, on nodes that count.
    domains: Vec<i64>,
}

impl RequiredSpread {
    /// Counts for the pod's constraints, as of now.
    pub fn new(snapshot: &mut Snapshot, pod: &PodInfo) -> Self {
        let hard: Vec<&Spread> = pod.spread.iter().filter(|s| s.hard).collect();
        if hard.is_empty() || pod.skips(Plugin::PodTopologySpread) {
            return Self::default();
        }
        let places: Vec<usize> = hard.iter().map(|s| snapshot.matching(&s.term)).collect();
        let topologies: Vec<usize> = places.iter().map(|at| snapshot.matching_at(*at).topology).collect();
        let constraints = hard.iter().zip(&places).map(|(spread, at)| {
            let (domains, present) = count(snapshot, pod, spread, *at, &topologies);
            let counts = domains.iter().zip(&present).filter(|(_, p)| **p).map(|(n, _)| *n);
            let known = present.iter().filter(|p| **p).count() as i64;
            let least = if known < spread.min_domains { 0 } else { counts.min().unwrap_or(0) };
            let own = i64::from(pod.matches(&spread.term, &snapshot.namespaces));
            let topology = snapshot.matching_at(*at).topology;
            let per_node = snapshot.topology_at(topology).is_per_node();
            Counted { topology, per_node, max_skew: spread.max_skew, own, least, domains }
        });
        Self { constraints: constraints.collect() }
    }

    /// Whether there is nothing to hold.
    pub fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Topologies that decide, as places.
    pub fn topologies(&self) -> impl Iterator<Item = usize> + '_ {
        self.constraints.iter().map(|c| c.topology)
    }

    /// Whether one more pod at the node keeps every constraint.
    pub fn check(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.constraints.iter().try_for_each(|c| c.check(snapshot, id))
    }

    /// The same for constraints whose domains have several nodes: the answer holds for all nodes of the domain.
    pub fn check_shared(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.constraints.iter().filter(|c| !c.per_node).try_for_each(|c| c.check(snapshot, id))
    }
}

impl Counted {
    fn check(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        const REASON: &str = "node(s) didn't match pod topology spread constraints";
        const NO_LABEL: &str =
            "node(s) didn't match pod topology spread constraints (missing required label)";
        let domain = snapshot.topology_at(self.topology).domain(id);
        if domain == NONE {
            return Err(Rejection::hopeless(Plugin::PodTopologySpread, NO_LABEL));
        }
        let here = self.domains.get(domain as usize).copied().unwrap_or(0);
        if here + self.own - self.least > self.max_skew {
            return Err(Rejection::new(Plugin::PodTopologySpread, REASON));
        }
        Ok(())
    }
}

/// Pods per domain, and which domains there are, by the nodes that count: those in a domain of every constraint where
/// the pod could be.
fn count(
    snapshot: &Snapshot,
    pod: &PodInfo,
    spread: &Spread,
    at: usize,
    topologies: &[usize],
) -> (Vec<i64>, Vec<bool>) {
    let matching = snapshot.matching_at(at);
    let topology = snapshot.topology_at(matching.topology);
    let picky = spread.honor_affinity && !(pod.node_selector.is_empty() && pod.node_required.is_none());
    if topologies.len() == 1 && !picky && !spread.honor_taints {
        let mut domains = matching.tally.domains.clone();
        domains.resize(topology.sizes.len(), 0);
        return (domains, topology.sizes.iter().map(|n| *n > 0).collect());
    }
    let mut domains = vec![0; topology.sizes.len()];
    let mut present = vec![false; topology.sizes.len()];
    for (id, domain) in topology.of_node.iter().enumerate() {
        let placed = topologies.iter().all(|t| snapshot.topology_at(*t).domain(id) != NONE);
        let Some(node) = snapshot.node(id).filter(|_| placed) else { continue };
        if (picky && !placement::admits(pod, node))
            || (spread.honor_taints && taints::check(pod, node).is_err())
        {
            continue;
        }
        present[*domain as usize] = true;
        domains[*domain as usize] += matching.tally.at_node(id);
    }
    (domains, present)
}
