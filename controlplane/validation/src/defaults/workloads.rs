//! Defaults of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use super::{pods, storage};
use crate::tree::{Grow, Tree, is_empty};
use serde_json::{Value, json};

/// A Deployment.
pub fn deployment(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("replicas", 1);
    spec.default("revisionHistoryLimit", 10);
    spec.default("progressDeadlineSeconds", 600);
    let strategy = spec.section("strategy");
    strategy.default("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.section("rollingUpdate");
        rolling.default("maxUnavailable", "25%");
        rolling.default("maxSurge", "25%");
    }
    pods::template(spec.section("template"));
}

/// A ReplicaSet.
pub fn replica_set(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("replicas", 1);
    if spec.has("template") {
        pods::template(spec.section("template"));
    }
}

/// A StatefulSet.
pub fn stateful_set(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("podManagementPolicy", "OrderedReady");
    spec.default("replicas", 1);
    spec.default("revisionHistoryLimit", 10);
    let update = spec.section("updateStrategy");
    if update.text("type").is_empty() {
        update.put("type", "RollingUpdate");
        update.section("rollingUpdate");
    }
    if update.text("type") == "RollingUpdate"
        && let Some(rolling) = update.existing("rollingUpdate")
    {
        rolling.default("partition", 0);
    }
    let retention = spec.section("persistentVolumeClaimRetentionPolicy");
    retention.default("whenDeleted", "Retain");
    retention.default("whenScaled", "Retain");
    spec.each("volumeClaimTemplates", |claim| {
        claim.default("apiVersion", "v1");
        claim.default("kind", "PersistentVolumeClaim");
        storage::claim(claim);
    });
    pods::template(spec.section("template"));
}

/// A DaemonSet.
pub fn daemon_set(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("revisionHistoryLimit", 10);
    let update = spec.section("updateStrategy");
    update.default("type", "RollingUpdate");
    if update.text("type") == "RollingUpdate" {
        let rolling = update.section("rollingUpdate");
        rolling.default("maxUnavailable", 1);
        rolling.default("maxSurge", 0);
    }
    pods::template(spec.section("template"));
}

/// A ReplicationController: selector and labels default to the template's labels.
pub fn replication_controller(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("replicas", 1);
    if !spec.has("template") {
        return;
    }
    pods::template(spec.section("template"));
    let labels = spec.at("template.metadata.labels").clone();
    if is_empty(&labels) {
        return;
    }
    spec.default_empty("selector", labels.clone());
    object.section("metadata").default_empty("labels", labels);
}

/// A ControllerRevision says its revision even when it is 0.
pub fn controller_revision(object: &mut Value) {
    object.default("revision", json!(0));
}
