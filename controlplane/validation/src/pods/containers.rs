//! Containers: regular, init and ephemeral ones.

use super::facts::PodFacts;
use super::{env, mounts, probes, resources, security};
use crate::field_ref::{Field, reported_at};
use crate::field_rules::TextRules as _;
use crate::quantities::container_name;
use coracle_fields::core::v1::{
    Container, ContainerPort, ContainerResizePolicy, EphemeralContainer, PodSpec,
};
use coracle_fields::{List, Text};
use coracle_proto::names::{dns1123_label, port_name, port_number};
use serde_json::json;
use std::collections::HashSet;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub(super) fn containers(spec: &Field<'_, PodSpec>, pod: &PodFacts<'_>) {
    let list = spec.containers();
    if list.is_empty() {
        return list.required("");
    }
    let mut names = HashSet::new();
    for container in list.items() {
        common(&container, pod);
        let name = container.name();
        if !names.insert(name.text()) {
            name.duplicate();
        }
        probes::lifecycle(&container.lifecycle(), pod);
        probes::all(&container);
        restart_policy(&container);
    }
    unique_host_ports(list.items());
}

pub(super) fn init_containers(spec: &Field<'_, PodSpec>, pod: &PodFacts<'_>) {
    let mut names: HashSet<&str> =
        spec.view().containers().items().map(|container| container.name().text()).collect();
    for container in spec.init_containers().items() {
        common(&container, pod);
        restart_policy(&container);
        let name = container.name();
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
        unique_host_ports(std::iter::once(container.clone()));
        if container.view().restart_policy() == "Always" {
            probes::lifecycle(&container.lifecycle(), pod);
            probes::all(&container);
            continue;
        }
        for field in [
            container.lifecycle().erased(),
            container.liveness_probe().erased(),
            container.readiness_probe().erased(),
            container.startup_probe().erased(),
        ] {
            if field.is_set() {
                field.forbidden(NOT_FOR_INIT);
            }
        }
    }
}

pub(super) fn ephemeral_containers(spec: &Field<'_, PodSpec>, pod: &PodFacts<'_>) {
    let both = spec.view().containers().items().chain(spec.view().init_containers().items());
    let others: HashSet<&str> = both.map(|container| container.name().text()).collect();
    let mut names = others.clone();
    for container in spec.ephemeral_containers().items() {
        common(&container.as_type(), pod);
        let name = container.name();
        if !names.insert(name.text()) {
            name.duplicate();
        }
        let target = container.target_container_name();
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        not_for_ephemeral(&container);
    }
}

fn not_for_ephemeral(container: &Field<'_, EphemeralContainer>) {
    for field in [
        container.ports().erased(),
        container.liveness_probe().erased(),
        container.readiness_probe().erased(),
        container.startup_probe().erased(),
        container.lifecycle().erased(),
        container.resources().erased(),
        container.resize_policy().erased(),
        container.restart_policy().erased(),
        container.restart_policy_rules().erased(),
    ] {
        if !field.is_empty() {
            field.forbidden(NOT_FOR_EPHEMERAL);
        }
    }
    for mount in container.volume_mounts().items() {
        for field in [mount.sub_path(), mount.sub_path_expr()] {
            if !field.is_empty() {
                field.forbidden(NOT_FOR_EPHEMERAL);
            }
        }
    }
}

fn common(container: &Field<'_, Container>, pod: &PodFacts<'_>) {
    container.name().named(dns1123_label);
    if container.image().text().is_empty() {
        container.image().required("");
    }
    container.termination_message_policy().required_one_of(&["File", "FallbackToLogsOnError"]);
    ports(&container.ports());
    env::variables(&container.env());
    env::sources(&container.env_from());
    mounts::mounts(container, pod);
    mounts::devices(container, pod);
    container.image_pull_policy().required_one_of(&["Always", "IfNotPresent", "Never"]);
    resources::requirements(&container.resources(), container_name, &pod.claims);
    resize_policies(&container.resize_policy(), pod);
    security::context(&container.security_context(), pod);
}

/// An image that begins or ends with space is a mistake in a pod; templates were always lenient.
pub(super) fn image_without_spaces(image: &Field<'_, Text>) {
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

fn ports(ports: &Field<'_, List<ContainerPort>>) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.name();
        if !name.text().is_empty() {
            let wrong = port_name(name.text());
            if !wrong.is_empty() {
                name.all_good(wrong);
            } else if !names.insert(name.text()) {
                name.duplicate();
            }
        }
        match port.container_port().or(0) {
            0 => port.container_port().required(""),
            number => port.container_port().all_good(port_number(number)),
        }
        if let Some(number) = port.host_port().int().filter(|number| *number != 0) {
            port.host_port().all_good(port_number(number));
        }
        port.protocol().required_one_of(&PROTOCOLS);
    }
}

/// No two containers may take one port of the host.
fn unique_host_ports<'a>(containers: impl Iterator<Item = Field<'a, Container>>) {
    let mut taken = HashSet::new();
    for container in containers {
        for port in container.ports().items() {
            let number = port.view().host_port().or(0);
            if number == 0 {
                continue;
            }
            let (protocol, host) = (port.view().protocol().text(), port.view().host_ip().text());
            let place = format!("{protocol}/{host}/{number}");
            if !taken.insert(place.clone()) {
                port.host_port().with(&json!(place)).duplicate();
            }
        }
    }
}

fn restart_policy(container: &Field<'_, Container>) {
    let policy = container.restart_policy();
    let rules = container.restart_policy_rules();
    if policy.is_set() {
        policy.one_of(&["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.items() {
        rule.action().one_of(&["Restart", "RestartAllContainers"]);
        let codes = rule.exit_codes();
        if codes.is_set() {
            codes.operator().one_of(&["In", "NotIn"]);
            if codes.values().len() > 255 {
                codes.values().too_many(255);
            }
        } else {
            codes.required("must be specified");
        }
    }
}

/// Upstream reports these at the list, without the name of the field.
fn resize_policies(policies: &Field<'_, List<ContainerResizePolicy>>, pod: &PodFacts<'_>) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.resource_name(), policy.restart_policy());
        if !seen.insert(resource.text()) {
            reported_at(&resource, &policy).duplicate();
        }
        reported_at(&resource, policies).required_one_of(&["cpu", "memory"]);
        let restart = reported_at(&restart, policies);
        restart.required_one_of(&["NotRequired", "RestartContainer"]);
        if pod.restart_policy == "Never" && restart.text() != "NotRequired" {
            restart.invalid("must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}
