//! Defaults of Pods and pod templates.

use super::{containers, quantities, volumes};
use crate::pod_sums;
use coracle_fields::core::v1::{Pod, PodSpec, PodTemplate, PodTemplateSpec};
use coracle_fields::{Edit, Schema};
use serde_json::Value;

/// A Pod: what templates get, and what only materialises in the pod itself.
pub fn pod(object: &mut Value) {
    let mut pod = Pod::edit(object);
    let mut spec = pod.spec().section();
    pod_spec(&mut spec);
    spec.containers().each_object(containers::requests_from_limits);
    spec.init_containers().each_object(containers::requests_from_limits);
    pod_level_requests(&mut spec);
    spec.enable_service_links().default(true);
    if spec.view().host_network().flag() {
        spec.containers().each_object(containers::host_ports);
        spec.init_containers().each_object(containers::host_ports);
    }
}

/// The template inside a workload.
pub(super) fn template(mut template: Edit<'_, PodTemplateSpec>) {
    template.metadata().section();
    pod_spec(&mut template.spec().section());
}

/// A PodTemplate object.
pub fn pod_template(object: &mut Value) {
    template(PodTemplate::edit(object).template().section());
}

fn pod_spec(spec: &mut Edit<'_, PodSpec>) {
    spec.dns_policy().default("ClusterFirst");
    spec.restart_policy().default("Always");
    spec.scheduler_name().default("default-scheduler");
    spec.termination_grace_period_seconds().default(30);
    spec.security_context().section();
    service_account(spec);
    spec.volumes().each_object(volumes::volume);
    spec.init_containers().each_object(containers::container);
    spec.containers().each_object(containers::container);
    spec.ephemeral_containers().each_object(|container| containers::container(container.like()));
    quantities::canonical_resources(spec.overhead());
    containers::canonical_requirements(spec.resources());
}

/// The old and the new name of the service account field always agree; the new one wins.
fn service_account(spec: &mut Edit<'_, PodSpec>) {
    let name = match (spec.view().service_account_name().text(), spec.view().service_account().text()) {
        ("", "") => return,
        ("", old) => old.to_owned(),
        (new, _) => new.to_owned(),
    };
    spec.service_account_name().set(&name);
    spec.service_account().set(name);
}

/// With pod-level limits, pod-level requests that nobody set are the containers' sum, else the limit.
fn pod_level_requests(spec: &mut Edit<'_, PodSpec>) {
    let limits = spec.view().resources().limits().to_entries();
    if limits.is_empty() {
        return;
    }
    let sums = pod_sums::requests(spec.view()).into_iter();
    let sums = sums.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    let limits = limits
        .into_iter()
        .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"));
    let amounts = sums.map(|(name, sum)| (name, Value::from(sum.to_string()))).chain(limits);
    quantities::fill_missing(spec.resources().requests(), amounts);
    if spec.view().resources().requests().entries().next().is_none() {
        spec.resources().requests().clear();
    }
}
