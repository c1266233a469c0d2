//! Pods before a write.

use crate::registry::kinds::{keep, keep_all_but_status};
use coracle_validation::pods::qos;
use coracle_validation::tree::{Grow, Tree, is_empty};
use serde_json::{Value, json};

/// A new Pod is pending, knows its quality of service, and carries the selectors that its label keys stand for.
pub fn create(pod: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(pod)});
    if !pod.items("spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": pod.at("metadata.creationTimestamp"),
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod.put("status", status);
    let labels = pod.at("metadata.labels").clone();
    if let Some(spec) = pod.existing("spec") {
        spread_by_label_keys(spec, &labels);
        affinity_by_label_keys(spec, &labels);
    }
}

fn affinity_by_label_keys(spec: &mut Value, labels: &Value) {
    let Some(affinity) = spec.existing("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(kind) = affinity.existing(kind) else { continue };
        kind.each("requiredDuringSchedulingIgnoredDuringExecution", |term| term_by_label_keys(term, labels));
        kind.each("preferredDuringSchedulingIgnoredDuringExecution", |weighted| {
            if let Some(term) = weighted.existing("podAffinityTerm") {
                term_by_label_keys(term, labels);
            }
        });
    }
}

fn term_by_label_keys(term: &mut Value, labels: &Value) {
    select_by_label_keys(term, "matchLabelKeys", "In", labels);
    select_by_label_keys(term, "mismatchLabelKeys", "NotIn", labels);
}

fn spread_by_label_keys(spec: &mut Value, labels: &Value) {
    spec.each("topologySpreadConstraints", |rule| select_by_label_keys(rule, "matchLabelKeys", "In", labels));
}

/// Adds `key In [the pod's own value]` to the selector for every listed key that the pod has.
fn select_by_label_keys(term: &mut Value, keys: &str, operator: &str, labels: &Value) {
    if term.items(keys).is_empty() || !term.has("labelSelector") {
        return;
    }
    let wanted: Vec<Value> = term
        .items(keys)
        .iter()
        .filter_map(|key| {
            let value = labels.get(key.as_str()?)?;
            Some(json!({"key": key, "operator": operator, "values": [value]}))
        })
        .collect();
    if wanted.is_empty() {
        return;
    }
    let selector = term.section("labelSelector");
    if !selector.at("matchExpressions").is_array() {
        selector.put("matchExpressions", json!([]));
    }
    if let Some(expressions) = selector["matchExpressions"].as_array_mut() {
        expressions.extend(wanted);
    }
}

/// `/status`: spec, owner references, deletion and QoS class are kept.
pub fn status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    for key in ["ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        keep(new.section("metadata"), old.at("metadata"), key);
    }
    let class = old.at("status.qosClass").clone();
    let observed = old.at("status.observedGeneration").clone();
    let status = new.section("status");
    if !class.is_null() {
        status.default("qosClass", class);
    }
    if !is_empty(&observed) {
        status.default_empty("observedGeneration", observed);
    }
    let mut generations: Vec<(String, Value)> = old
        .items("status.conditions")
        .iter()
        .map(|condition| (condition.text("type").to_owned(), condition.at("observedGeneration").clone()))
        .collect();
    status.each("conditions", |condition| {
        let of_type = generations.iter().position(|(kind, _)| kind == condition.text("type"));
        if let Some((_, generation)) = of_type.map(|index| generations.remove(index))
            && !is_empty(&generation)
        {
            condition.default_empty("observedGeneration", generation);
        }
    });
}

/// `/ephemeralcontainers`: only they change.
pub fn ephemeral(new: &mut Value, old: &Value) {
    let containers = new.at("spec.ephemeralContainers").clone();
    only_the_object_version(new, old);
    if !containers.is_null() {
        new.section("spec").put("ephemeralContainers", containers);
    } else {
        new.section("spec").drop_key("ephemeralContainers");
    }
}

/// `/resize`: only resources and resize policies of containers change.
pub fn resize(new: &mut Value, old: &Value) {
    let wanted = new.at("spec").clone();
    only_the_object_version(new, old);
    let spec = new.section("spec");
    for list in ["containers", "initContainers"] {
        spec.each(list, |container| {
            let name = container.text("name").to_owned();
            let Some(asked) = wanted.items(list).iter().find(|other| other.text("name") == name) else {
                return;
            };
            for key in ["resources", "resizePolicy"] {
                keep(container, asked, key);
            }
        });
    }
    if wanted.has("resources") {
        keep(spec, &wanted, "resources");
    }
}

/// Makes `new` the old object, but for the version that the client based its change on and managed fields.
fn only_the_object_version(new: &mut Value, old: &Value) {
    let (version, managed) =
        (new.at("metadata.resourceVersion").clone(), new.at("metadata.managedFields").clone());
    *new = old.clone();
    for (key, value) in [("resourceVersion", version), ("managedFields", managed)] {
        if !value.is_null() {
            new.section("metadata").put(key, value);
        }
    }
}
