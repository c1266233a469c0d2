//! Making room: which pods of lower priority would have to go, and where that hurts least.

use super::filters::{self, Query};
use super::pod::PodInfo;
use super::snapshot::{NodeId, Snapshot};
use super::terms::selects;
use super::why::{Diagnosis, histogram};
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

/// A node to clear, and of what.
#[derive(Debug)]
pub struct Plan {
    /// The node.
    pub node: NodeId,
    /// Pods to remove, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a budget protects.
    pub violations: usize,
}

/// Finds the node where removing pods of lower priority hurts least, or says why it does not help. The snapshot is
/// changed while trying and put back.
pub fn plan(
    snapshot: &mut Snapshot,
    pod: &Arc<PodInfo>,
    diagnosis: &Diagnosis,
    budgets: &[Budget],
) -> Result<Plan, String> {
    if pod.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.".into());
    }
    if awaits_victims(snapshot, pod, diagnosis) {
        return Err("not eligible due to a terminating pod on the nominated node.".into());
    }
    let nodes = diagnosis.nodes;
    let hopeful: Vec<NodeId> = diagnosis
        .verdicts
        .iter()
        .filter(|(_, r)| !r.hopeless)
        .filter_map(|(name, _)| snapshot.node_named(name))
        .collect();
    let enough = (hopeful.len() / 10).max(100);
    let mut plans: Vec<Plan> = Vec::new();
    let mut reasons: Vec<String> = Vec::new();
    for node in &hopeful {
        match try_node(snapshot, pod, *node, budgets) {
            Ok(plan) => plans.push(plan),
            Err(why) => reasons.extend(why),
        }
        if plans.len() >= enough {
            break;
        }
    }
    let best = plans.into_iter().min_by(|a, b| cost(a).cmp(&cost(b)));
    best.ok_or_else(|| {
        let unhelpful = ("Preemption is not helpful for scheduling", nodes - hopeful.len());
        let text = histogram(reasons.iter().map(|r| (r.as_str(), 1)).chain([unhelpful]));
        format!("0/{nodes} nodes are available: {text}.")
    })
}

/// Whether pods that it pushed out earlier are still leaving its nominated node.
fn awaits_victims(snapshot: &Snapshot, pod: &PodInfo, diagnosis: &Diagnosis) -> bool {
    if pod.nominated.is_empty() {
        return false;
    }
    let verdict = diagnosis.verdicts.iter().find(|(name, _)| *name == pod.nominated);
    if verdict.is_some_and(|(_, r)| r.hopeless) {
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
) -> Result<Plan, Vec<String>> {
    let lower: Vec<Arc<PodInfo>> = match snapshot.node(id) {
        Some(node) => node.pods.iter().filter(|p| p.priority < pod.priority).cloned().collect(),
        None => Vec::new(),
    };
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".into()]);
    }
    for victim in &lower {
        snapshot.detach(id, victim);
    }
    let mut removed = lower.clone();
    let outcome = match fits(snapshot, pod, id) {
        Err(rejection) => Err(rejection.reasons.iter().map(ToString::to_string).collect()),
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
            Ok(Plan { node: id, victims, violations })
        }
    };
    for pod in removed {
        snapshot.attach(id, pod);
    }
    outcome
}

fn fits(snapshot: &mut Snapshot, pod: &Arc<PodInfo>, id: NodeId) -> Result<(), filters::Rejection> {
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
