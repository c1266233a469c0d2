//! Defaults of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use super::{pods, storage};
use crate::tree::is_empty;
use coracle_fields::Schema;
use coracle_fields::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use coracle_fields::core::v1::ReplicationController;
use serde_json::Value;

/// A Deployment.
pub fn deployment(object: &mut Value) {
    let mut deployment = Deployment::edit(object);
    let mut spec = deployment.spec().section();
    spec.replicas().default(1);
    spec.revision_history_limit().default(10);
    spec.progress_deadline_seconds().default(600);
    let mut strategy = spec.strategy().section();
    strategy.type_().default("RollingUpdate");
    if strategy.view().type_() == "RollingUpdate" {
        let mut rolling = strategy.rolling_update().section();
        rolling.max_unavailable().default("25%");
        rolling.max_surge().default("25%");
    }
    pods::template(spec.template().section());
}

/// A ReplicaSet.
pub fn replica_set(object: &mut Value) {
    let mut set = ReplicaSet::edit(object);
    let mut spec = set.spec().section();
    spec.replicas().default(1);
    if spec.view().template().is_set() {
        pods::template(spec.template().section());
    }
}

/// A StatefulSet.
pub fn stateful_set(object: &mut Value) {
    let mut set = StatefulSet::edit(object);
    let mut spec = set.spec().section();
    spec.pod_management_policy().default("OrderedReady");
    spec.replicas().default(1);
    spec.revision_history_limit().default(10);
    let mut update = spec.update_strategy().section();
    if update.view().type_().text().is_empty() {
        update.type_().set("RollingUpdate");
        update.rolling_update().section();
    }
    if update.view().type_() == "RollingUpdate"
        && let Some(mut rolling) = update.rolling_update().existing()
    {
        rolling.partition().default(0);
    }
    let mut retention = spec.persistent_volume_claim_retention_policy().section();
    retention.when_deleted().default("Retain");
    retention.when_scaled().default("Retain");
    spec.volume_claim_templates().each_object(|mut claim| {
        claim.api_version().default("v1");
        claim.kind().default("PersistentVolumeClaim");
        storage::fill_claim(claim);
    });
    pods::template(spec.template().section());
}

/// A DaemonSet.
pub fn daemon_set(object: &mut Value) {
    let mut set = DaemonSet::edit(object);
    let mut spec = set.spec().section();
    spec.revision_history_limit().default(10);
    let mut update = spec.update_strategy().section();
    update.type_().default("RollingUpdate");
    if update.view().type_() == "RollingUpdate" {
        let mut rolling = update.rolling_update().section();
        rolling.max_unavailable().default(1);
        rolling.max_surge().default(0);
    }
    pods::template(spec.template().section());
}

/// A ReplicationController: selector and labels default to the template's labels.
pub fn replication_controller(object: &mut Value) {
    let mut controller = ReplicationController::edit(object);
    let mut spec = controller.spec().section();
    spec.replicas().default(1);
    if !spec.view().template().is_set() {
        return;
    }
    pods::template(spec.template().section());
    let labels = spec.view().template().metadata().labels().to_value();
    if is_empty(&labels) {
        return;
    }
    if spec.view().selector().entries().next().is_none() {
        spec.selector().put(labels.clone());
    }
    if controller.view().metadata().labels().entries().next().is_none() {
        controller.metadata().labels().put(labels);
    }
}

/// A ControllerRevision says its revision even when it is 0.
pub fn controller_revision(object: &mut Value) {
    ControllerRevision::edit(object).revision().default(0);
}
