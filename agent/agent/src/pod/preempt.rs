//! Which pods make room for a critical pod. Pure; the choice is the kubelet's.

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use super::spec::{self, Qos};

/// What a pod needs beyond what the node has free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Name of the resource, `pods` among them.
    pub resource: String,
    /// How much is missing.
    pub missing: i64,
}

/// There are not enough pods that may be preempted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {}", text(.0))]
pub struct PreemptError(Vec<Shortage>);

fn text(shortages: &[Shortage]) -> String {
    let parts =
        shortages.iter().map(|shortage| format!("(res: {}, q: {}), ", shortage.resource, shortage.missing));
    format!("[{}]", parts.collect::<String>())
}

/// The pods to end so that the missing resources become free: as few as possible, and of the lowest QoS class.
pub fn victims(pod: &Pod, others: &[Arc<Pod>], missing: &[Shortage]) -> Result<Vec<Arc<Pod>>, PreemptError> {
    let class = |wanted: Qos| -> Vec<Arc<Pod>> {
        let is_candidate =
            |other: &&Arc<Pod>| is_preemptable(pod, other) && spec::qos(&spec::spec(other)) == wanted;
        others.iter().filter(is_candidate).cloned().collect()
    };
    let (best_effort, burstable, guaranteed) =
        (class(Qos::BestEffort), class(Qos::Burstable), class(Qos::Guaranteed));
    let without = |first: &[Arc<Pod>], second: &[Arc<Pod>]| left(&left(missing, first), second);
    let never = left(&without(&best_effort, &burstable), &guaranteed);
    if !never.is_empty() {
        return Err(PreemptError(never));
    }
    // Pods of a class are taken only for what all pods of the lower classes do not free.
    let from_guaranteed = nearest(guaranteed, without(&best_effort, &burstable))?;
    let from_burstable = nearest(burstable, without(&best_effort, &from_guaranteed))?;
    let from_best_effort = nearest(best_effort, without(&from_burstable, &from_guaranteed))?;
    Ok([from_best_effort, from_burstable, from_guaranteed].concat())
}

fn is_preemptable(by: &Pod, pod: &Pod) -> bool {
    if spec::is_critical(by) && !spec::is_critical(pod) {
        return true;
    }
    let priorities = (spec::spec(by).priority, spec::spec(pod).priority);
    matches!(priorities, (Some(own), Some(other)) if own > other)
}

fn requested(pod: &Pod, resource: &str) -> i64 {
    match resource {
        "pods" => 1,
        _ => spec::totals(&spec::spec(pod), false).get(resource).copied().unwrap_or(0),
    }
}

/// What is missing after these pods have ended.
fn left(missing: &[Shortage], pods: &[Arc<Pod>]) -> Vec<Shortage> {
    let after = |shortage: &Shortage| {
        let freed = pods.iter().map(|pod| requested(pod, &shortage.resource)).fold(0, i64::saturating_add);
        Shortage { resource: shortage.resource.clone(), missing: shortage.missing.saturating_sub(freed) }
    };
    missing.iter().map(after).filter(|shortage| shortage.missing > 0).collect()
}

/// Takes the pods whose requests are nearest to what is missing, one after the other.
fn nearest(mut pods: Vec<Arc<Pod>>, mut missing: Vec<Shortage>) -> Result<Vec<Arc<Pod>>, PreemptError> {
    let mut taken = Vec::new();
    while !missing.is_empty() {
        let of = |pod: &Arc<Pod>| (distance(pod, &missing), requested(pod, "memory"), requested(pod, "cpu"));
        let order = |a: &(f64, i64, i64), b: &(f64, i64, i64)| {
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        let best = pods.iter().enumerate().min_by(|(_, a), (_, b)| order(&of(a), &of(b)));
        let Some(best) = best.map(|(index, _)| index) else { return Err(PreemptError(missing)) };
        let pod = pods.swap_remove(best);
        missing = left(&missing, std::slice::from_ref(&pod));
        taken.push(pod);
    }
    Ok(taken)
}

/// How much of what is missing the pod does not free, every resource counted alike.
fn distance(pod: &Pod, missing: &[Shortage]) -> f64 {
    let part = |shortage: &Shortage| {
        let rest = shortage.missing.saturating_sub(requested(pod, &shortage.resource)).max(0);
        #[allow(clippy::cast_precision_loss)]
        let part = rest as f64 / shortage.missing as f64;
        part * part
    };
    missing.iter().map(part).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pod(name: &str, cpu: &str, limited: bool, priority: i32) -> Arc<Pod> {
        let mut resources = json!({});
        if !cpu.is_empty() {
            resources["requests"] = json!({"cpu": cpu, "memory": "1Mi"});
        }
        if limited {
            resources["limits"] = resources["requests"].clone();
        }
        let pod = json!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": resources}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn critical_pods_preempt_as_few_pods_of_the_lowest_class_as_possible() {
        let critical = pod("critical", "1", true, 2_000_000_000);
        let others = [
            pod("best-effort", "", false, 0),
            pod("small", "100m", false, 0),
            pod("large", "500m", false, 0),
            pod("guaranteed", "1", true, 0),
            pod("system", "1", true, 2_000_001_000),
        ];
        let cpu = |missing| Shortage { resource: "cpu".into(), missing };
        let pods = Shortage { resource: "pods".into(), missing: 1 };
        for (missing, want) in [
            (vec![cpu(50)], vec!["small"]),
            (vec![cpu(400)], vec!["large"]),
            (vec![cpu(550)], vec!["large", "small"]),
            // All that burstable pods have is 600m; only what they lack is taken from the Guaranteed one.
            (vec![cpu(1500)], vec!["large", "guaranteed"]),
            (vec![pods.clone()], vec!["best-effort"]),
            (vec![cpu(100), pods], vec!["small"]),
        ] {
            let got = victims(&critical, &others, &missing).unwrap();
            let names: Vec<&str> = got.iter().map(|pod| spec::name(pod)).collect();
            assert_eq!(names, want, "{missing:?}");
        }
        let error = victims(&critical, &others, &[cpu(2000)]).unwrap_err();
        assert!(error.to_string().ends_with("to reclaim resources: [(res: cpu, q: 400), ]"), "{error}");
    }
}
