//! Deployments, sets and Jobs before a write.

use crate::registry::kinds::{keep, keep_all_but_status};
use coracle_validation::tree::{Grow, Tree};
use serde_json::{Value, json};

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Deployments start with an empty status.
pub fn create_deployment(object: &mut Value) {
    object.put("status", json!({}));
}

/// ReplicaSets and ReplicationControllers count from zero.
pub fn create_replicas(object: &mut Value) {
    object.put("status", json!({"replicas": 0}));
}

/// StatefulSets count from zero.
pub fn create_stateful_set(object: &mut Value) {
    object.put("status", json!({"replicas": 0, "availableReplicas": 0}));
}

/// DaemonSets count from zero.
pub fn create_daemon_set(object: &mut Value) {
    object.put(
        "status",
        json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}),
    );
}

/// `/status` of a Deployment leaves its labels alone.
pub fn deployment_status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    keep(new.section("metadata"), old.at("metadata"), "labels");
}

/// Jobs select their pods by uid unless told otherwise.
pub fn create_job(object: &mut Value) {
    object.put("status", json!({}));
    if object.flag("spec.manualSelector") {
        return;
    }
    let (name, uid) = (object.at("metadata.name").clone(), object.at("metadata.uid").clone());
    let spec = object.section("spec");
    let labels = spec.section("template").section("metadata").section("labels");
    for key in JOB_NAME {
        set(labels, key, &name);
    }
    for key in CONTROLLER_UID {
        set(labels, key, &uid);
    }
    set(spec.section("selector").section("matchLabels"), CONTROLLER_UID[1], &uid);
}

/// Label keys have dots, so they are no paths.
fn set(labels: &mut Value, key: &str, value: &Value) {
    if labels.get(key).is_none() {
        labels.put(key, value.clone());
    }
}

/// CronJobs start with an empty status.
pub fn create_cron_job(object: &mut Value) {
    object.put("status", json!({}));
}

/// HorizontalPodAutoscalers start with nothing observed.
pub fn create_autoscaler(object: &mut Value) {
    object.put("status", json!({"currentReplicas": 0, "desiredReplicas": 0}));
}

/// A new PodDisruptionBudget allows no disruptions until the controller has updated its status.
pub fn create_budget(object: &mut Value) {
    object.put(
        "status",
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_select_by_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u-1"}, "spec": {"manualSelector": false,
            "template": {"metadata": {"labels": {"a": "b"}}}}});
        create_job(&mut job);
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}})
        );
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({"a": "b", "controller-uid": "u-1", "batch.kubernetes.io/controller-uid": "u-1",
                "job-name": "j", "batch.kubernetes.io/job-name": "j"})
        );
        let mut manual = json!({"metadata": {"name": "j"}, "spec": {"manualSelector": true}});
        create_job(&mut manual);
        assert!(manual["spec"].get("selector").is_none());
    }
}
