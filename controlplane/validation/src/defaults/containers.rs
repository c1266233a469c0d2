//! Defaults of containers, probes and resource requirements.

use super::quantities::{canonical_resources, fill_missing};
use coracle_fields::Edit;
use coracle_fields::core::v1::{Container, HTTPGetAction, Probe, ResourceRequirements};
use serde_json::Value;

/// A container of any sort.
pub(super) fn container(mut container: Edit<'_, Container>) {
    container.resources().section();
    container.termination_message_path().default("/dev/termination-log");
    container.termination_message_policy().default("File");
    let policy = pull_policy(container.view().image().text());
    container.image_pull_policy().default(policy);
    container.ports().each_object(|mut port| port.protocol().default("TCP"));
    container.env().each_object(|mut variable| {
        if let Some(mut field) = variable.value_from().field_ref().existing() {
            field.api_version().default("v1");
        }
        if let Some(mut field) = variable.value_from().file_key_ref().existing() {
            field.optional().default(false);
        }
    });
    fill_probe(container.liveness_probe());
    fill_probe(container.readiness_probe());
    fill_probe(container.startup_probe());
    http_get(container.lifecycle().post_start().http_get());
    http_get(container.lifecycle().pre_stop().http_get());
    canonical_requirements(container.resources());
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

fn fill_probe(probe: Edit<'_, Probe>) {
    let Some(mut probe) = probe.existing() else { return };
    probe.timeout_seconds().default_empty(1);
    probe.period_seconds().default_empty(10);
    probe.success_threshold().default_empty(1);
    probe.failure_threshold().default_empty(3);
    http_get(probe.http_get());
    if let Some(mut grpc) = probe.grpc().existing() {
        grpc.service().default("");
    }
}

fn http_get(get: Edit<'_, HTTPGetAction>) {
    let Some(mut get) = get.existing() else { return };
    get.path().default("/");
    get.scheme().default("HTTP");
}

/// Missing requests default to the limits.
pub(super) fn requests_from_limits(mut container: Edit<'_, Container>) {
    let Value::Object(limits) = container.view().resources().limits().to_value() else { return };
    fill_missing(container.resources().requests(), limits);
}

/// With host networking every port is a host port.
pub(super) fn host_ports(mut container: Edit<'_, Container>) {
    container.ports().each_object(|mut port| {
        let number = port.view().container_port().int();
        port.host_port().default_empty(number);
    });
}

/// Writes the quantities of `limits` and `requests` as upstream would.
pub(super) fn canonical_requirements(mut resources: Edit<'_, ResourceRequirements>) {
    canonical_resources(resources.limits());
    canonical_resources(resources.requests());
}
