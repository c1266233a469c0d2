//! Changes of a pod's status.

use super::updates::fixed_annotations;
use crate::field_ref::{Field, FieldRef, reported_at, walk_as};
use crate::field_rules::TextRules as _;
use crate::names::{is_old_ip, new_ip};
use coracle_fields::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use coracle_fields::{Int64, List, Schema as _, Text, View};
use coracle_proto::names::{dns1123_subdomain, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::net::IpAddr;

/// A change of `/status`.
pub fn status_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Pod::of(old);
    walk_as::<Pod>(new, errors, |pod| {
        fixed_annotations(&pod.metadata().annotations(), old.metadata().annotations());
        let (status, before) = (pod.status(), old.status());
        for condition in status.conditions().items() {
            negative_generation(&condition.observed_generation());
            let kind = condition.type_();
            if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
                reported_at(&kind, &condition.below("Type")).follows(qualified_name);
            }
        }
        negative_generation(&status.observed_generation());
        let nominated = status.nominated_node_name();
        if !nominated.is_empty() && !nominated.view().same_as(before.nominated_node_name()) {
            nominated.follows(dns1123_subdomain);
            if old.spec().node_name().filled().is_some() {
                nominated.forbidden("may not be set on pods that are already bound to a node");
            }
        }
        if before.qos_class().is_set() {
            status.qos_class().immutable(before.qos_class());
        }
        let spec = old.spec();
        let regular = (status.container_statuses(), before.container_statuses());
        let init = (status.init_container_statuses(), before.init_container_statuses());
        let ephemeral = (status.ephemeral_container_statuses(), before.ephemeral_container_statuses());
        transitions(&regular.0, regular.1, Some(spec.containers()), spec);
        transitions(&init.0, init.1, Some(spec.init_containers()), spec);
        transitions(&ephemeral.0, ephemeral.1, None, spec);
        let (pods, hosts) = (status.pod_ips(), status.host_ips());
        let known: Vec<&str> = before.pod_ips().items().map(|item| item.ip().text()).collect();
        addresses(&pods, pods.items().map(|item| reported_at(&item.ip(), &item)), &known);
        if let Some(first) = hosts.items().next() {
            if first.ip().text() != status.view().host_ip().text() {
                first.ip().invalid("must be equal to `hostIP`");
            }
            let known: Vec<&str> = before.host_ips().items().map(|item| item.ip().text()).collect();
            addresses(&hosts, hosts.items().map(|item| reported_at(&item.ip(), &item)), &known);
        }
    });
}

fn negative_generation(field: &Field<'_, Int64>) {
    if field.int().is_some_and(|number| number < 0) {
        field.invalid("must be a non-negative integer");
    }
}

/// At most one address of each family. Those that were known before may have any form.
fn addresses<'a>(list: &FieldRef<'_>, items: impl Iterator<Item = Field<'a, Text>>, known: &[&str]) {
    let mut families = Vec::new();
    for item in items {
        new_ip(&item, known);
        if let Some(address) = is_old_ip(&item) {
            families.push(IpAddr::is_ipv4(&address));
        }
    }
    if list.len() > 1 && (list.len() > 2 || families.windows(2).any(|pair| pair[0] == pair[1])) {
        list.invalid("may specify no more than one IP for each IP family");
    }
}

/// A container that ended stays ended, unless it is to be restarted, by its own rules or with all others; ephemeral
/// containers never are.
fn transitions(
    new: &Field<'_, List<ContainerStatus>>,
    old: View<'_, List<ContainerStatus>>,
    containers: Option<View<'_, List<Container>>>,
    spec: View<'_, PodSpec>,
) {
    for (index, before) in old.items().enumerate() {
        let ended = before.state().terminated();
        if !ended.is_set() {
            continue;
        }
        let name = before.name().text();
        let Some(after) = new.view().items().find(|status| status.name() == name) else { continue };
        let restarts = || {
            containers.is_some_and(|containers| {
                all_may_restart(spec) || may_restart(containers, name, ended.exit_code().or(0), spec)
            })
        };
        if !after.state().terminated().is_set() && !restarts() {
            let path = format!("{}[{index}].state", new.path());
            new.report(FieldError::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

/// Whether a rule of any container restarts all of them.
fn all_may_restart(spec: View<'_, PodSpec>) -> bool {
    let mut containers = spec.init_containers().items().chain(spec.containers().items());
    containers.any(|container| {
        container.restart_policy_rules().items().any(|rule| rule.action() == "RestartAllContainers")
    })
}

fn may_restart(
    containers: View<'_, List<Container>>,
    name: &str,
    code: i64,
    spec: View<'_, PodSpec>,
) -> bool {
    let Some(container) = containers.items().find(|container| container.name() == name) else {
        return false;
    };
    for rule in container.restart_policy_rules().items() {
        let codes = rule.exit_codes();
        let listed = codes.values().items().any(|value| value == code);
        let matches = listed == (codes.operator() == "In");
        if matches && rule.action() == "Restart" {
            return true;
        }
    }
    let policy = container.restart_policy().filled().unwrap_or(spec.restart_policy().text());
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}
