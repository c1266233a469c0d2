//! What a ReplicaSet (or ReplicationController) does next, from what is there. No clock, no tasks.

use coracle_fields::apps::v1::ReplicaSetStatus;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_fields::{Schema as _, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::pod::{Pod, deletion_order};
use coracle_informer::selector::{self, Labels, Selector};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// How many pods one turn creates or deletes at most; the rest comes with the next turn.
pub const BURST: usize = 500;

/// The wanted state, as both kinds write it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// How many pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// How long a pod must be ready to be available.
    pub min_ready_seconds: i32,
    /// Which pods.
    #[serde(deserialize_with = "selector::either")]
    pub selector: Selector,
    /// What a pod looks like.
    pub template: Value,
}

fn one() -> i32 {
    1
}

/// What to do with pods.
#[derive(Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    Stay,
    /// Create as many.
    Create(usize),
    /// Delete these, by name.
    Delete(Vec<String>),
}

/// Compares wanted and active pods. `related` are the pods of all sets of the same owner, for spreading the loss.
pub fn plan_scale(replicas: i32, active: &[&Pod], related: &[Pod], now: Timestamp) -> Scale {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    if active.len() < wanted {
        return Scale::Create((wanted - active.len()).min(BURST));
    }
    if active.len() == wanted {
        return Scale::Stay;
    }
    let mut crowd: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|p| p.active()) {
        *crowd.entry(&pod.node).or_default() += 1;
    }
    let mut ranked: Vec<(&Pod, usize)> =
        active.iter().map(|p| (*p, crowd.get(p.node.as_str()).copied().unwrap_or(0))).collect();
    ranked.sort_by(|a, b| deletion_order(*a, *b, now));
    let excess = (active.len() - wanted).min(BURST);
    Scale::Delete(ranked.iter().take(excess).map(|(p, _)| p.name().to_owned()).collect())
}

/// How a turn of creating or deleting went wrong.
#[derive(Debug)]
pub struct Failure<'a> {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: &'a str,
    /// The error.
    pub message: String,
}

/// The new status. `active` and `terminating` are the set's own pods; ReplicationControllers do not count the latter.
pub fn plan_status(
    old: &Value,
    generation: i64,
    spec: &Spec,
    (active, terminating): (&[&Pod], Option<usize>),
    failure: Option<Failure<'_>>,
    now: Timestamp,
) -> Value {
    let labels: Labels = PodTemplateSpec::of(&spec.template).metadata().labels().read().unwrap_or_default();
    let labelled = Selector::of(labels);
    let ready = active.iter().filter(|p| p.ready).count();
    let available = active.iter().filter(|p| p.available(spec.min_ready_seconds, now)).count();
    let fully = active.iter().filter(|p| labelled.matches(p.labels())).count();
    let mut list: Vec<Condition> = ReplicaSetStatus::of(old).conditions().read().unwrap_or_default();
    match failure {
        Some(failure) if conditions::find(&list, "ReplicaFailure").is_none() => {
            let condition = Condition::new("ReplicaFailure", true, failure.reason, failure.message, now);
            conditions::set(&mut list, condition);
        }
        Some(_) => {}
        None => conditions::remove(&mut list, "ReplicaFailure"),
    }
    let filled = |count: usize| (count > 0).then_some(count);
    let status = make!(part ReplicaSetStatus {
        replicas: active.len(),
        observed_generation: generation,
        terminating_replicas: terminating,
        fully_labeled_replicas: filled(fully),
        ready_replicas: filled(ready),
        available_replicas: filled(available),
        conditions: (!list.is_empty()).then_some(list),
    });
    status.into_value()
}

/// When a ready pod that is not yet available will be.
pub fn next_available(active: &[&Pod], min_ready: i32, now: Timestamp) -> Option<Timestamp> {
    let waiting = active.iter().filter(|p| p.ready && !p.available(min_ready, now));
    waiting.filter_map(|p| p.available_at(min_ready)).min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(n: usize, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        Pod::read(&object(json!({
            "metadata": {"name": format!("p{n}"), "uid": format!("u{n}"), "labels": {"app": "web"},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })))
    }

    #[test]
    fn both_spellings_of_a_selector_are_read() {
        let labels = Labels::from([("app".into(), "web".into())]);
        for selector in [json!({"app": "web"}), json!({"matchLabels": {"app": "web"}})] {
            let spec: Spec = serde_json::from_value(json!({"selector": selector})).unwrap();
            assert!(spec.selector.matches(&labels));
            assert!(!spec.selector.matches(&Labels::new()));
        }
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let spec = Spec {
            replicas: 2,
            template: json!({"metadata": {"labels": {"app": "web"}}}),
            ..Spec::default()
        };
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let pods = [pod(0, true)];
        let active: Vec<&Pod> = pods.iter().collect();
        let failure = Failure { reason: "FailedCreate", message: "exceeded quota".into() };
        let bad = plan_status(&json!({}), 3, &spec, (&active, Some(1)), Some(failure), now);
        assert_eq!(bad["conditions"][0]["reason"], "FailedCreate");
        assert_eq!(bad["terminatingReplicas"], 1);
        let good = plan_status(&bad, 3, &spec, (&active, Some(0)), None, now);
        assert_eq!(
            good,
            json!({"replicas": 1, "observedGeneration": 3, "terminatingReplicas": 0, "fullyLabeledReplicas": 1,
                "readyReplicas": 1, "availableReplicas": 1})
        );
        let controller = plan_status(&good, 3, &spec, (&active, None), None, now);
        assert!(controller.get("terminatingReplicas").is_none(), "core/v1 has no such field: {controller}");
    }

    proptest! {
        #[test]
        fn scaling_ends_at_the_wanted_number(wanted in 0i32..40, ready in prop::collection::vec(any::<bool>(), 0..40)) {
            let pods: Vec<Pod> = ready.iter().enumerate().map(|(n, r)| pod(n, *r)).collect();
            let active: Vec<&Pod> = pods.iter().collect();
            let now = "2026-01-02T00:00:00Z".parse().unwrap();
            let after = match plan_scale(wanted, &active, &pods, now) {
                Scale::Stay => active.len(),
                Scale::Create(n) => active.len() + n,
                Scale::Delete(names) => {
                    let unready = ready.iter().filter(|r| !**r).count();
                    let lost_ready = names.iter().filter(|n| pods.iter().any(|p| p.name() == **n && p.ready)).count();
                    prop_assert_eq!(lost_ready, names.len().saturating_sub(unready), "unready pods go first");
                    active.len() - names.len()
                }
            };
            prop_assert_eq!(after, wanted as usize);
        }
    }
}
