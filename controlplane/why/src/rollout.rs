//! What is said about workloads with which nothing is wrong: how many of their pods are ready, and how far a rollout is.

use coracle_fields::View;
use coracle_fields::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use coracle_fields::core::v1::ReplicationController;
use coracle_fields::meta::ObjectMeta;

/// Numbers of pods, by the status of a workload.
struct Pods {
    /// Whether the status is of this spec, not of an earlier one.
    observed: bool,
    wanted: i64,
    made: i64,
    /// Of the newest template.
    updated: i64,
    ready: i64,
}

impl Pods {
    fn sentence(&self) -> Option<String> {
        let Self { observed, wanted, made, updated, ready } = *self;
        if !observed {
            return None;
        }
        match (wanted, made) {
            (0, 0) => Some("wants no pods, and has none".to_owned()),
            (0, made) => Some(format!("wants no pods, and still has {made}")),
            _ if ready < wanted => None,
            _ if updated < wanted => Some(format!(
                "is being rolled out: {updated} of {wanted} pods are of the newest template, {ready} pods are ready"
            )),
            (1, _) => Some("has all its pods: 1 of 1 is ready".to_owned()),
            _ => Some(format!("has all its pods: {wanted} of {wanted} are ready")),
        }
    }
}

/// Whether a status with this generation is of the current spec.
fn is_observed(meta: View<'_, ObjectMeta>, observed: Option<i64>) -> bool {
    observed.unwrap_or(0) >= meta.generation().or(0)
}

/// A Deployment.
pub fn deployment(set: View<'_, Deployment>) -> Option<String> {
    let (status, wanted) = (set.status(), set.spec().replicas().or(1));
    let pods = Pods {
        observed: is_observed(set.metadata(), status.observed_generation().int()),
        wanted,
        made: status.replicas().or(0),
        updated: status.updated_replicas().or(0),
        ready: status.available_replicas().or(0),
    };
    pods.sentence()
}

/// A ReplicaSet, whose pods are all of one template.
pub fn replica_set(set: View<'_, ReplicaSet>) -> Option<String> {
    let (status, wanted) = (set.status(), set.spec().replicas().or(1));
    let pods = Pods {
        observed: is_observed(set.metadata(), status.observed_generation().int()),
        wanted,
        made: status.replicas().or(0),
        updated: wanted,
        ready: status.ready_replicas().or(0),
    };
    pods.sentence()
}

/// A ReplicationController; a new template is for new pods only.
pub fn controller(set: View<'_, ReplicationController>) -> Option<String> {
    let (status, wanted) = (set.status(), set.spec().replicas().or(1));
    let pods = Pods {
        observed: is_observed(set.metadata(), status.observed_generation().int()),
        wanted,
        made: status.replicas().or(0),
        updated: wanted,
        ready: status.ready_replicas().or(0),
    };
    pods.sentence()
}

/// A StatefulSet. With `OnDelete` or a partition, older pods are meant to stay.
pub fn stateful_set(set: View<'_, StatefulSet>) -> Option<String> {
    let (status, wanted) = (set.status(), set.spec().replicas().or(1));
    let strategy = set.spec().update_strategy();
    let keeps = strategy.type_() == "OnDelete" || strategy.rolling_update().partition().or(0) > 0;
    let is_done = status.update_revision().text() == status.current_revision().text();
    let pods = Pods {
        observed: is_observed(set.metadata(), status.observed_generation().int()),
        wanted,
        made: status.replicas().or(0),
        updated: if keeps || is_done { wanted } else { status.updated_replicas().or(0) },
        ready: status.ready_replicas().or(0),
    };
    pods.sentence()
}

/// A DaemonSet. With `OnDelete`, older pods are meant to stay.
pub fn daemon_set(set: View<'_, DaemonSet>) -> Option<String> {
    let (status, wanted) = (set.status(), set.status().desired_number_scheduled().or(0));
    let keeps = set.spec().update_strategy().type_() == "OnDelete";
    let pods = Pods {
        observed: is_observed(set.metadata(), status.observed_generation().int()),
        wanted,
        made: status.current_number_scheduled().or(0) + status.number_misscheduled().or(0),
        updated: if keeps { wanted } else { status.updated_number_scheduled().or(0) },
        ready: status.number_ready().or(0),
    };
    pods.sentence()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[test]
    fn deployments_are_counted() {
        let said = |replicas: i64, status: Value| {
            deployment(Deployment::of(
                &json!({"metadata": {"generation": 2}, "spec": {"replicas": replicas}, "status": status}),
            ))
        };
        let status = |observed: i64, made: i64, updated: i64, available: i64| json!({"observedGeneration": observed, "replicas": made, "updatedReplicas": updated, "availableReplicas": available});
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(said(3, status(2, 3, 3, 3)), text("has all its pods: 3 of 3 are ready"));
        assert_eq!(said(3, status(1, 3, 3, 3)), None, "the status is of the spec before");
        assert_eq!(said(3, status(2, 3, 3, 2)), None);
        let rolling = "is being rolled out: 1 of 3 pods are of the newest template, 3 pods are ready";
        assert_eq!(said(3, status(2, 4, 1, 3)), text(rolling));
        assert_eq!(said(0, status(2, 0, 0, 0)), text("wants no pods, and has none"));
        assert_eq!(said(0, status(2, 2, 2, 0)), text("wants no pods, and still has 2"));
    }

    #[test]
    fn older_pods_may_be_meant_to_stay() {
        let said = |strategy: Value| {
            stateful_set(StatefulSet::of(
                &json!({"spec": {"replicas": 2, "updateStrategy": strategy}, "status": {"replicas": 2,
                "readyReplicas": 2, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"}}),
            ))
            .unwrap()
        };
        assert!(said(json!({"type": "RollingUpdate"})).starts_with("is being rolled out: 1 of 2"));
        assert!(said(json!({"type": "OnDelete"})).starts_with("has all its pods"));
        assert!(said(json!({"rollingUpdate": {"partition": 1}})).starts_with("has all its pods"));
    }
}
