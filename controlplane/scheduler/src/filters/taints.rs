//! Taints and tolerations.

use super::super::node::NodeInfo;
use super::super::pod::PodInfo;
use super::super::wire::{Taint, Toleration};
use crate::rejection::{Plugin, Rejection};

/// Taints that keep pods away must be tolerated.
pub fn check(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let keeps_away = |t: &&Taint| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute");
    match node.taints.iter().filter(keeps_away).all(|taint| tolerates(&pod.tolerations, taint)) {
        true => Ok(()),
        false => Err(Rejection::hopeless(Plugin::TaintToleration, "node(s) had untolerated taint(s)")),
    }
}

/// Whether any toleration covers a taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| {
        (t.effect.is_empty() || t.effect == taint.effect)
            && (t.key.is_empty() || t.key == taint.key)
            && match t.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => t.value == taint.value && !t.key.is_empty(),
                "Lt" => numeric(taint, t, i64::lt),
                "Gt" => numeric(taint, t, i64::gt),
                _ => false,
            }
    })
}

fn numeric(taint: &Taint, toleration: &Toleration, holds: impl Fn(&i64, &i64) -> bool) -> bool {
    match (taint.value.parse(), toleration.value.parse()) {
        (Ok(taint), Ok(bound)) => holds(&taint, &bound),
        _ => false,
    }
}
