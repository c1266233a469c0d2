//! Required affinity and anti-affinity between pods, in both directions.

use super::super::counts::NONE;
use super::super::pod::PodInfo;
use super::super::snapshot::{NodeId, Snapshot};
use super::{Plugin, Rejection};

/// The places of the counts that decide.
#[derive(Debug, Default)]
pub struct Hard {
    affinity: Vec<usize>,
    anti: Vec<usize>,
    /// Rules that pods carry against this one.
    against: Vec<usize>,
    /// Whether the pod satisfies its own affinity.
    own: bool,
}

impl Hard {
    /// Looks up the counts for a pod's rules and for those of others about it.
    pub fn new(snapshot: &mut Snapshot, pod: &PodInfo) -> Self {
        let affinity = pod.affinity.iter().map(|t| snapshot.matching(t)).collect();
        let anti = pod.anti_affinity.iter().map(|t| snapshot.matching(t)).collect();
        let own = pod.affinity.iter().all(|t| t.matches(pod, &snapshot.namespaces));
        let holdings = snapshot.holdings().iter().enumerate();
        let against =
            holdings.filter(|(_, h)| h.term.matches(pod, &snapshot.namespaces)).map(|(at, _)| at).collect();
        Self { affinity, anti, against, own }
    }

    /// Whether there is nothing to decide.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti.is_empty() && self.against.is_empty()
    }

    /// Topologies that decide, as places.
    pub fn topologies(&self, snapshot: &Snapshot) -> Vec<usize> {
        let matching = self.affinity.iter().chain(&self.anti).map(|at| snapshot.matching_at(*at).topology);
        let holding = self.against.iter().map(|at| snapshot.holdings()[*at].topology);
        matching.chain(holding).collect()
    }

    /// Whether the pod may be the first that its affinity asks for.
    pub fn opens(&self, snapshot: &Snapshot) -> bool {
        self.own && self.affinity.iter().all(|at| snapshot.matching_at(*at).tally.total == 0)
    }

    /// Whether the pod and its neighbours-to-be at a node accept each other.
    pub fn check(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.judge(snapshot, id, false)
    }

    /// The same by rules whose domains have several nodes: the answer holds for all nodes of the domain.
    pub fn check_shared(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.judge(snapshot, id, true)
    }

    fn judge(&self, snapshot: &Snapshot, id: NodeId, shared: bool) -> Result<(), Rejection> {
        let skip = |topology: usize| shared && snapshot.topology_at(topology).is_per_node();
        let mut all_met = true;
        for at in &self.affinity {
            let matching = snapshot.matching_at(*at);
            if skip(matching.topology) {
                continue;
            }
            let domain = snapshot.topology_at(matching.topology).domain(id);
            if domain == NONE {
                return Err(Rejection::hopeless(
                    Plugin::InterPodAffinity,
                    "node(s) didn't match pod affinity rules",
                ));
            }
            all_met &= matching.tally.in_domain(domain) > 0;
        }
        if !all_met && !self.opens(snapshot) {
            return Err(Rejection::hopeless(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod affinity rules",
            ));
        }
        for at in &self.anti {
            let matching = snapshot.matching_at(*at);
            let domain = snapshot.topology_at(matching.topology).domain(id);
            if domain != NONE && !skip(matching.topology) && matching.tally.in_domain(domain) > 0 {
                return Err(Rejection::new(
                    Plugin::InterPodAffinity,
                    "node(s) didn't match pod anti-affinity rules",
                ));
            }
        }
        for at in &self.against {
            let holding = &snapshot.holdings()[*at];
            let domain = snapshot.topology_at(holding.topology).domain(id);
            if domain != NONE && !skip(holding.topology) && holding.repelled.in_domain(domain) > 0 {
                return Err(Rejection::new(
                    Plugin::InterPodAffinity,
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                ));
            }
        }
        Ok(())
    }
}
