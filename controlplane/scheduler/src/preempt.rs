//! Preemption: selects the node and the victims of lower priority at the lowest cost.

use super::diagnosis::{Diagnosis, histogram};
use super::filters::{self, Query};
use super::pod::PodInfo;
use super::rejection::Rejection;
use super::snapshot::{NodeId, Snapshot};
use super::terms::selects;
use coracle_proto::selector::LabelSelector;
use std::cmp::Reverse;
use std::sync::Arc;

/// A PodDisruptionBudget.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// Its pods.
    pub selector: LabelSelector,
    /// How many may go now.
    pub allowed: i64,
    /// Pods that already went, by name.
    pub disrupted: Vec<String>,
}

/// The node and the victims of a preemption.
#[derive(Debug)]
pub struct Plan {
    /// The node.
    pub node: NodeId,
    /// Pods to remove, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// Number of victims that violate a PodDisruptionBudget.
    pub violations: usize,
}

/// Why there is no preemption for a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreemptionError {
    /// A preemption for the pod is in progress.
    #[error("waiting for the preemption for this pod to be finished")]
    UnderWay,
    /// Its profile has no preemption.
    #[error("")]
    Disabled,
    /// Its preemptionPolicy is Never.

    #[error("not eligible due to preemptionPolicy=Never.")]
    Never,
    /// Victims on the nominated node are still terminating.
    #[error("not eligible due to a terminating pod on the nominated node.")]
    Terminating,
    /// Preemption does not help on any node.
    #[error("0/{nodes} nodes are available: {reasons}.")]
    NoNode {
        /// Number of nodes.
        nodes: usize,
        /// Number of nodes per reason.
        reasons: String,
    },
}

impl PreemptionError {
    /// Whether the pod was not eligible, so that the nominated node stays.
    pub fn is_ineligible(&self) -> bool {
        matches!(self, Self::Disabled | Self::Never | Self::Terminating)
    }
}

/// Why preemption does not help on a node.
enum NodeRejected {
    NoVictims,
    Rejected(Rejection),
}

/// Finds the node with the cheapest preemption. The snapshot is changed during the search and restored.
pub fn plan(
    snapshot: &mut Snapshot,
    pod: &Arc<PodInfo>,
    diagnosis: &Diagnosis,
    budgets: &[Budget],
) -> Result<Plan, PreemptionError> {
    let plans = candidates(snapshot, pod, diagnosis, budgets)?;
    cheapest(plans).ok_or(PreemptionError::Disabled)
}

/// The cheapest of some preemptions.
pub fn cheapest(plans: Vec<Plan>) -> Option<Plan> {
    plans.into_iter().min_by(|a, b| cost(a).cmp(&cost(b)))
}

/// The preemptions that would help, one per node and at least one. The snapshot is changed during the search and restored.
pub fn candidates(
    snapshot: &mut Snapshot,
    pod: &Arc<PodInfo>,
    diagnosis: &Diagnosis,
    budgets: &[Budget],
) -> Result<Vec<Plan>, PreemptionError> {
    if pod.rules.as_ref().is_some_and(|rules| !rules.preempts) {
        return Err(PreemptionError::Disabled);
    }
    if pod.never_preempts {
        return Err(PreemptionError::Never);
    }
    if awaits_victims(snapshot, pod, diagnosis) {
        return Err(PreemptionError::Terminating);
    }
    let nodes = diagnosis.nodes;
    let hopeful: Vec<NodeId> = diagnosis
        .rejections
        .iter()
        .filter(|(_, r)| !r.hopeless)
        .filter_map(|(name, _)| snapshot.node_named(name))
        .collect();
    let (percent, least) = pod.rules.as_ref().map_or((10, 100), |rules| rules.preemption_candidates);
    let enough = (hopeful.len() * percent / 100).max(least).max(1);
    let mut plans: Vec<Plan> = Vec::new();
    let mut reasons: Vec<String> = Vec::new();
    for node in &hopeful {
        match try_node(snapshot, pod, *node, budgets) {
            Ok(plan) => plans.push(plan),
            Err(NodeRejected::NoVictims) => {
                reasons.push("No preemption victims found for incoming pod".into())
            }
            Err(NodeRejected::Rejected(rejection)) => {
                reasons.extend(rejection.reasons.iter().map(ToString::to_string));
            }
        }
        if plans.len() >= enough {
            break;
        }
    }
    if !plans.is_empty() {
        return Ok(plans);
    }
    let unhelpful = ("Preemption is not helpful for scheduling", nodes - hopeful.len());
    let reasons = histogram(reasons.iter().map(|r| (r.as_str(), 1)).chain([unhelpful]));
    Err(PreemptionError::NoNode { nodes, reasons })
}

/// Whether pods that it pushed out earlier are still leaving its nominated node.
fn awaits_victims(snapshot: &Snapshot, pod: &PodInfo, diagnosis: &Diagnosis) -> bool {
    if pod.nominated.is_empty() {
        return false;
    }
    let rejection = diagnosis.rejections.iter().find(|(name, _)| *name == pod.nominated);
    if rejection.is_some_and(|(_, r)| r.hopeless) {
        return false;
    }
    let node = snapshot.node_named(&pod.nominated).and_then(|id| snapshot.node(id));
    node.is_some_and(|n| n.pods.iter().any(|p| p.preempted && p.priority < pod.priority))
}

/// What is compared, in order: budgets broken, the most important victim, all victims' importance, their number, and how
/// recently the most important started.
fn cost(plan: &Plan) -> (usize, i32, i64, usize, Reverse<&str>) {
    let highest = plan.victims.first().map_or(i32::MIN, |v| v.priority);
    let sum = plan.victims.iter().map(|v| i64::from(v.priority) + i64::from(i32::MAX) + 1).sum();
    let earliest = plan.victims.iter().filter(|v| v.priority == highest).map(|v| v.started.as_str()).min();
    (plan.violations, highest, sum, plan.victims.len(), Reverse(earliest.unwrap_or_default()))
}

fn try_node(
    snapshot: &mut Snapshot,
    pod: &Arc<PodInfo>,
    id: NodeId,
    budgets: &[Budget],
) -> Result<Plan, NodeRejected> {
    let lower: Vec<Arc<PodInfo>> = match snapshot.node(id) {
        Some(node) => node.pods.iter().filter(|p| p.priority < pod.priority).cloned().collect(),
        None => Vec::new(),
    };
    if lower.is_empty() {
        return Err(NodeRejected::NoVictims);
    }
    for victim in &lower {
        snapshot.detach(id, victim);
    }
    let mut removed = lower.clone();
    let outcome = match fits(snapshot, pod, id) {
        Err(rejection) => Err(NodeRejected::Rejected(rejection)),
        Ok(()) => {
            let (mut protected, mut free) = split_by_budget(lower, budgets);
            sort_by_importance(&mut protected);
            sort_by_importance(&mut free);
            let mut violations = 0;
            let mut victims = Vec::new();
            let guarded = protected.len();
            for (n, candidate) in protected.into_iter().chain(free).enumerate() {
                // Put it back if the pod still fits beside it.
                snapshot.attach(id, candidate.clone());
                if fits(snapshot, pod, id).is_ok() {
                    removed.retain(|r| r.key != candidate.key);
                    continue;
                }
                snapshot.detach(id, &candidate);
                violations += usize::from(n < guarded);
                victims.push(candidate);
            }
            sort_by_importance(&mut victims);
            // Without victims it was not a rule about the node that refused, but an extender.
            if victims.is_empty() {
                Err(NodeRejected::NoVictims)
            } else {
                Ok(Plan { node: id, victims, violations })
            }
        }
    };
    for pod in removed {
        snapshot.attach(id, pod);
    }
    outcome
}

fn fits(snapshot: &mut Snapshot, pod: &Arc<PodInfo>, id: NodeId) -> Result<(), Rejection> {
    let query = Query::new(snapshot, pod.clone());
    filters::check(snapshot, &query, id)
}

/// Higher priority first; of equals, the one that runs longer.
fn sort_by_importance(pods: &mut [Arc<PodInfo>]) {
    pods.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.started.cmp(&b.started)));
}

/// Pods whose removal a budget does not allow, and the others. Each removal uses up a budget.
fn split_by_budget(pods: Vec<Arc<PodInfo>>, budgets: &[Budget]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<i64> = budgets.iter().map(|b| b.allowed).collect();
    let mut sorted = pods;
    sort_by_importance(&mut sorted);
    sorted.into_iter().partition(|pod| {
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let covers = budget.namespace == pod.namespace
                && !budget.selector.is_empty()
                && !pod.labels.is_empty()
                && selects(&budget.selector, &pod.labels)
                && !budget.disrupted.contains(&pod.name);
            if covers {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}
