//! Required affinity and anti-affinity between pods, in both directions.

use super::super::counts::NONE;
use super::super::pod::PodInfo;
use super::super::snapshot::{NodeId, Snapshot};
use crate::rejection::{Plugin, Rejection};

/// Indexes of the counts that the required terms use.
#[derive(Debug, Default)]
pub struct RequiredAffinity {
    affinity: Vec<usize>,
    anti: Vec<usize>,
    /// Anti-affinity terms of other pods that match this one.
    against: Vec<usize>,
    /// Whether the pod matches its own affinity terms.
    own: bool,
}

impl RequiredAffinity {
    /// Looks up the counts for a pod's rules and for those of others about it.
    pub fn new(snapshot: &mut Snapshot, pod: &PodInfo) -> Self {
        if pod.skips(Plugin::InterPodAffinity) {
            return Self::default();
        }
        let affinity = pod.affinity.iter().map(|t| snapshot.matching(t)).collect();
        let anti = pod.anti_affinity.iter().map(|t| snapshot.matching(t)).collect();
        let own = pod.affinity.iter().all(|t| pod.matches(t, &snapshot.namespaces));
        let holdings = snapshot.holdings().iter().enumerate();
        let against =
            holdings.filter(|(_, h)| pod.matches(&h.term, &snapshot.namespaces)).map(|(at, _)| at).collect();
        Self { affinity, anti, against, own }
    }

    /// Whether there is nothing to decide.
    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti.is_empty() && self.against.is_empty()
    }

    /// Indexes of the topologies that these terms use.
    pub fn topologies(&self, snapshot: &Snapshot) -> Vec<usize> {
        let matching = self.affinity.iter().chain(&self.anti).map(|at| snapshot.matching_at(*at).topology);
        let holding = self.against.iter().map(|at| snapshot.holdings()[*at].topology);
        matching.chain(holding).collect()
    }

    /// Whether the pod may be the first pod that matches its own affinity terms.
    pub fn may_be_first(&self, snapshot: &Snapshot) -> bool {
        self.own && self.affinity.iter().all(|at| snapshot.matching_at(*at).tally.total == 0)
    }

    /// Checks the terms of the pod and of existing pods for a node.
    pub fn check(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.check_domains(snapshot, id, false)
    }

    /// Checks only terms whose domains have several nodes: the result holds for all nodes of the domain.
    pub fn check_shared(&self, snapshot: &Snapshot, id: NodeId) -> Result<(), Rejection> {
        self.check_domains(snapshot, id, true)
    }

    fn check_domains(&self, snapshot: &Snapshot, id: NodeId, shared: bool) -> Result<(), Rejection> {
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
        if !all_met && !self.may_be_first(snapshot) {
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
