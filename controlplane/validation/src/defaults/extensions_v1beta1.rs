//! Defaults that kinds had in `extensions/v1beta1`, and of selectors in `apps/v1beta1`. What these leave open has the defaults of v1.

use super::{network, workloads};
use coracle_fields::Schema as _;
use coracle_fields::apps::v1::{DaemonSet, Deployment};
use coracle_fields::extensions::v1beta1::Ingress;
use coracle_fields::meta::PartialObjectMetadata;
use serde_json::{Value, json};

/// Stands for no limit: of the history of a Deployment, and of the time for its progress.
const UNLIMITED: i64 = i32::MAX as i64;

/// Without a selector, the labels of the template are it. All workloads have it where Deployments have it.
pub fn select_own_labels(object: &mut Value) {
    let spec = Deployment::of(object).spec();
    if spec.selector().is_set() {
        return;
    }
    let labels = template_labels(object);
    if !labels.is_null() {
        Deployment::edit(object).spec().selector().put(json!({"matchLabels": labels}));
    }
}

/// The labels of the template; null if there are none.
fn template_labels(object: &Value) -> Value {
    let labels = Deployment::of(object).spec().template().metadata().labels().to_value();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) { labels } else { Value::Null }
}

/// Selector and labels.
fn workload(object: &mut Value) {
    select_own_labels(object);
    let labels = template_labels(object);
    if PartialObjectMetadata::of(object).metadata().labels().entries().next().is_none() && !labels.is_null() {
        PartialObjectMetadata::edit(object).metadata().labels().put(labels);
    }
}

/// A Deployment.
pub fn deployment(object: &mut Value) {
    workload(object);
    let mut deployment = Deployment::edit(object);
    let mut spec = deployment.spec().section();
    spec.revision_history_limit().default(UNLIMITED);
    spec.progress_deadline_seconds().default(UNLIMITED);
    let mut strategy = spec.strategy().section();
    strategy.type_().default("RollingUpdate");
    if strategy.view().type_() == "RollingUpdate" {
        let mut rolling = strategy.rolling_update().section();
        rolling.max_unavailable().default(1);
        rolling.max_surge().default(1);
    }
    workloads::deployment(object);
}

/// A ReplicaSet.
pub fn replica_set(object: &mut Value) {
    workload(object);
    workloads::replica_set(object);
}

/// A DaemonSet: its pods are replaced when somebody deletes them.
pub fn daemon_set(object: &mut Value) {
    workload(object);
    DaemonSet::edit(object).spec().update_strategy().type_().default("OnDelete");
    workloads::daemon_set(object);
}

/// An Ingress: paths need no type.
pub fn ingress(object: &mut Value) {
    if let Some(mut spec) = Ingress::edit(object).spec().existing() {
        spec.rules().each_object(|mut rule| {
            let Some(mut http) = rule.http().existing() else { return };
            http.paths().each_object(|mut path| path.path_type().default("ImplementationSpecific"));
        });
    }
    network::ingress(object);
}
