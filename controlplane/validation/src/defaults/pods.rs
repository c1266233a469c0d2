//! Defaults of Pods and pod templates.

use super::{containers, quantities, volumes};
use crate::tree::{Grow, Tree};
use serde_json::{Value, json};

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// A Pod: what templates get, and what only materialises in the pod itself.
pub fn pod(pod: &mut Value) {
    let spec = pod.section("spec");
    pod_spec(spec);
    for list in ["containers", "initContainers"] {
        spec.each(list, containers::requests_from_limits);
    }
    pod_level_requests(spec);
    spec.default("enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        spec.each("containers", containers::host_ports);
        spec.each("initContainers", containers::host_ports);
    }
}

/// The template inside a workload.
pub fn template(template: &mut Value) {
    template.section("metadata");
    pod_spec(template.section("spec"));
}

/// A PodTemplate object.
pub fn pod_template(object: &mut Value) {
    template(object.section("template"));
}

fn pod_spec(spec: &mut Value) {
    spec.default("dnsPolicy", "ClusterFirst");
    spec.default("restartPolicy", "Always");
    spec.default("schedulerName", "default-scheduler");
    spec.default("terminationGracePeriodSeconds", 30);
    spec.section("securityContext");
    service_account(spec);
    spec.each("volumes", volumes::volume);
    for list in CONTAINER_LISTS {
        spec.each(list, containers::container);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        quantities::canonical_resources(overhead);
    }
    if let Some(resources) = spec.existing("resources") {
        containers::canonical_requirements(resources);
    }
}

/// The old and the new name of the service account field always agree; the new one wins.
fn service_account(spec: &mut Value) {
    let name = match (spec.text("serviceAccountName"), spec.text("serviceAccount")) {
        ("", "") => return,
        ("", old) => old.to_owned(),
        (new, _) => new.to_owned(),
    };
    spec.put("serviceAccountName", name.clone());
    spec.put("serviceAccount", name);
}

/// With pod-level limits, pod-level requests that nobody set are the containers' sum, else the limit.
fn pod_level_requests(spec: &mut Value) {
    let limits: Vec<(String, Value)> =
        spec.entries("resources.limits").map(|(key, value)| (key.clone(), value.clone())).collect();
    if limits.is_empty() {
        return;
    }
    let sums = quantities::sum_of_requests(spec);
    let requests = spec.section("resources").section("requests");
    for (name, sum) in sums {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.default(&name, sum);
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.default(&name, limit);
        }
    }
    if requests == &json!({}) {
        spec.section("resources").drop_key("requests");
    }
}
