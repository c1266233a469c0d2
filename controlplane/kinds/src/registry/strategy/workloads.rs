//! Deployments, sets and Jobs before a write.

use crate::registry::kinds::{keep_all_but_status, keep_status};
use coracle_fields::apps::v1::{
    DaemonSet, DaemonSetStatus, Deployment, ReplicaSet, ReplicaSetStatus, StatefulSet, StatefulSetStatus,
};
use coracle_fields::autoscaling_v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use coracle_fields::batch::v1::{CronJob, Job};
use coracle_fields::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use coracle_fields::{Edit, Map, Schema, Text, make};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Deployments start with an empty status.
pub fn create_deployment(object: &mut Value) {
    Deployment::edit(object).status().put(json!({}));
}

/// Updates of a Deployment: its ReplicaSets get its annotations, so that a change of them counts as one of the spec.
pub fn update_deployment(new: &mut Value, old: &Value) {
    keep_status(new, old);
    if annotations(new) != annotations(old) {
        let next = Deployment::of(old).metadata().generation().or(0) + 1;
        Deployment::edit(new).metadata().generation().set(next);
    }
}

fn annotations(deployment: &Value) -> BTreeMap<String, String> {
    Deployment::of(deployment).metadata().annotations().read().unwrap_or_default()
}

/// ReplicaSets and ReplicationControllers count from zero.
pub fn create_replicas(object: &mut Value) {
    ReplicaSet::edit(object).status().set(make!(part ReplicaSetStatus { replicas: 0 }));
}

/// StatefulSets count from zero.
pub fn create_stateful_set(object: &mut Value) {
    let status = make!(part StatefulSetStatus { replicas: 0, available_replicas: 0 });
    StatefulSet::edit(object).status().set(status);
}

/// StatefulSets without the feature `MaxUnavailableStatefulSet`: the field is not stored.
pub fn create_stateful_set_one_by_one(object: &mut Value) {
    create_stateful_set(object);
    StatefulSet::edit(object).spec().update_strategy().rolling_update().max_unavailable().clear();
}

/// The same for updates: a field that was stored while the feature was on stays.
pub fn update_stateful_set_one_by_one(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let used = |set: &Value| {
        StatefulSet::of(set).spec().update_strategy().rolling_update().max_unavailable().is_set()
    };
    if used(new) && !used(old) {
        StatefulSet::edit(new).spec().update_strategy().rolling_update().max_unavailable().clear();
    }
}

/// DaemonSets count from zero.
pub fn create_daemon_set(object: &mut Value) {
    let status = make!(part DaemonSetStatus {
        current_number_scheduled: 0,
        number_misscheduled: 0,
        desired_number_scheduled: 0,
        number_ready: 0,
    });
    DaemonSet::edit(object).status().set(status);
}

/// `/status` of a Deployment leaves its labels alone.
pub fn deployment_status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    Deployment::edit(new).metadata().section().labels().set(Deployment::of(old).metadata().labels());
}

/// Jobs select their pods by uid unless told otherwise.
pub fn create_job(object: &mut Value) {
    let mut job = Job::edit(object);
    job.status().put(json!({}));
    if job.view().spec().manual_selector().flag() {
        return;
    }
    let name = job.view().metadata().name().get().map(str::to_owned);
    let uid = job.view().metadata().uid().get().map(str::to_owned);
    let mut spec = job.spec().section();
    for key in JOB_NAME {
        set(spec.template().metadata().labels(), key, name.as_deref());
    }
    for key in CONTROLLER_UID {
        set(spec.template().metadata().labels(), key, uid.as_deref());
    }
    set(spec.selector().match_labels(), CONTROLLER_UID[1], uid.as_deref());
}

fn set(mut labels: Edit<'_, Map<Text>>, key: &str, value: Option<&str>) {
    if !labels.view().key(key).is_set() {
        labels.insert(key, value);
    }
}

/// CronJobs start with an empty status.
pub fn create_cron_job(object: &mut Value) {
    CronJob::edit(object).status().put(json!({}));
}

/// HorizontalPodAutoscalers start with nothing observed.
pub fn create_autoscaler(object: &mut Value) {
    let status = make!(part HorizontalPodAutoscalerStatus { current_replicas: 0, desired_replicas: 0 });
    HorizontalPodAutoscaler::edit(object).status().set(status);
}

/// A new PodDisruptionBudget allows no disruptions until the controller has updated its status.
pub fn create_budget(object: &mut Value) {
    let status = make!(part PodDisruptionBudgetStatus {
        current_healthy: 0,
        desired_healthy: 0,
        disruptions_allowed: 0,
        expected_pods: 0,
    });
    PodDisruptionBudget::edit(object).status().set(status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_deployments_count_as_their_spec() {
        let deployment =
            |annotations: Value| json!({"metadata": {"generation": 3, "annotations": annotations}});
        for (was, is, generation) in [
            (json!({"a": "b"}), json!({"a": "b"}), 3),
            (Value::Null, json!({}), 3),
            (json!({"a": "b"}), json!({"a": "c"}), 4),
            (json!({"a": "b"}), Value::Null, 4),
        ] {
            let mut new = deployment(is.clone());
            update_deployment(&mut new, &deployment(was.clone()));
            assert_eq!(new["metadata"]["generation"], generation, "{was} {is}");
            let mut new = deployment(is);
            deployment_status(&mut new, &deployment(was));
            assert_eq!(new["metadata"]["generation"], 3, "the controller notes the revision with the status");
        }
    }

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
