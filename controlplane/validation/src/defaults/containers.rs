//! Defaults of containers, probes and resource requirements.

use super::quantities::canonical_resources;
use crate::tree::{Grow, Tree};
use serde_json::Value;

/// A container of any sort.
pub(super) fn container(container: &mut Value) {
    container.section("resources");
    container.default("terminationMessagePath", "/dev/termination-log");
    container.default("terminationMessagePolicy", "File");
    let policy = pull_policy(container.text("image"));
    container.default("imagePullPolicy", policy);
    container.each("ports", |port| port.default("protocol", "TCP"));
    container.each("env", |variable| {
        if let Some(field) = variable.existing("valueFrom").and_then(|from| from.existing("fieldRef")) {
            field.default("apiVersion", "v1");
        }
        if let Some(field) = variable.existing("valueFrom").and_then(|from| from.existing("fileKeyRef")) {
            field.default("optional", false);
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(value) = container.existing(probe) {
            fill_probe(value);
        }
    }
    if let Some(lifecycle) = container.existing("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(get) = lifecycle.existing(hook).and_then(|hook| hook.existing("httpGet")) {
                http_get(get);
            }
        }
    }
    canonical_requirements(container.section("resources"));
}

/// `Always` for images that move (no tag, or `latest`, and no digest), else `IfNotPresent`.
pub fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, digest),
        None => (image, ""),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let moves = match tag {
        Some(tag) => tag == "latest",
        None => digest.is_empty(),
    };
    if moves { "Always" } else { "IfNotPresent" }
}

fn fill_probe(probe: &mut Value) {
    probe.default_empty("timeoutSeconds", 1);
    probe.default_empty("periodSeconds", 10);
    probe.default_empty("successThreshold", 1);
    probe.default_empty("failureThreshold", 3);
    if let Some(get) = probe.existing("httpGet") {
        http_get(get);
    }
    if let Some(grpc) = probe.existing("grpc") {
        grpc.default("service", "");
    }
}

fn http_get(get: &mut Value) {
    get.default("path", "/");
    get.default("scheme", "HTTP");
}

/// Missing requests default to the limits.
pub(super) fn requests_from_limits(container: &mut Value) {
    let limits = container.at("resources.limits").clone();
    let Some(limits) = limits.as_object() else { return };
    let requests = container.section("resources").section("requests");
    for (name, limit) in limits {
        requests.default(name, limit.clone());
    }
}

/// With host networking every port is a host port.
pub(super) fn host_ports(container: &mut Value) {
    container.each("ports", |port| {
        let number = port.at("containerPort").clone();
        port.default_empty("hostPort", number);
    });
}

/// Writes the quantities of `limits` and `requests` as upstream would.
pub(super) fn canonical_requirements(resources: &mut Value) {
    for list in ["limits", "requests"] {
        if let Some(list) = resources.existing(list) {
            canonical_resources(list);
        }
    }
}
