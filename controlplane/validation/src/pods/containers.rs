//! Containers: regular, init and ephemeral ones.

use super::{Pod, env, mounts, probes, resources, security};
use crate::field_ref::FieldRef;
use crate::tree::{Tree, is_empty};
use coracle_proto::names::{dns1123_label, port_name, port_number};
use serde_json::json;
use std::collections::HashSet;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub(super) fn containers(spec: &FieldRef<'_>, pod: &Pod<'_>) {
    let list = spec.at("containers");
    if list.is_empty() {
        return list.required("");
    }
    let mut names = HashSet::new();
    for container in list.items() {
        common(&container, pod);
        let name = container.at("name");
        if !names.insert(name.text()) {
            name.duplicate();
        }
        probes::lifecycle(&container.at("lifecycle"), pod);
        probes::all(&container, pod);
        restart_policy(&container);
    }
    unique_host_ports(list.items());
}

pub(super) fn init_containers(spec: &FieldRef<'_>, pod: &Pod<'_>) {
    let mut names: HashSet<&str> = spec.value.items("containers").iter().map(|c| c.text("name")).collect();
    for container in spec.each("initContainers") {
        common(&container, pod);
        restart_policy(&container);
        let name = container.at("name");
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
        unique_host_ports(std::iter::once(container.clone()));
        if container.value.text("restartPolicy") == "Always" {
            probes::lifecycle(&container.at("lifecycle"), pod);
            probes::all(&container, pod);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.at(field).is_set() {
                container.at(field).forbidden(NOT_FOR_INIT);
            }
        }
    }
}

pub(super) fn ephemeral_containers(spec: &FieldRef<'_>, pod: &Pod<'_>) {
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.value.items(list).iter().map(|container| container.text("name")))
        .collect();
    let mut names = others.clone();
    for container in spec.each("ephemeralContainers") {
        common(&container, pod);
        let name = container.at("name");
        if !names.insert(name.text()) {
            name.duplicate();
        }
        let target = container.at("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        for field in [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
        ] {
            if !is_empty(container.value.at(field)) {
                container.at(field).forbidden(NOT_FOR_EPHEMERAL);
            }
        }
        for mount in container.each("volumeMounts") {
            for field in ["subPath", "subPathExpr"] {
                if !mount.at(field).is_empty() {
                    mount.at(field).forbidden(NOT_FOR_EPHEMERAL);
                }
            }
        }
    }
}

fn common(container: &FieldRef<'_>, pod: &Pod<'_>) {
    container.at("name").named(dns1123_label);
    if container.at("image").text().is_empty() {
        container.at("image").required("");
    }
    container.at("terminationMessagePolicy").required_one_of(&["File", "FallbackToLogsOnError"]);
    ports(&container.at("ports"));
    env::variables(&container.at("env"));
    env::sources(&container.at("envFrom"));
    mounts::mounts(container, pod);
    mounts::devices(container, pod);
    container.at("imagePullPolicy").required_one_of(&["Always", "IfNotPresent", "Never"]);
    resources::requirements(&container.at("resources"), resources::container_name, &pod.claims);
    resize_policies(&container.at("resizePolicy"), pod);
    security::context(&container.at("securityContext"), pod);
}

/// An image that begins or ends with space is a mistake in a pod; templates were always lenient.
pub(super) fn image_without_spaces(container: &FieldRef<'_>) {
    let image = container.at("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

fn ports(ports: &FieldRef<'_>) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.at("name");
        if !name.text().is_empty() {
            let wrong = port_name(name.text());
            if !wrong.is_empty() {
                name.all_good(wrong);
            } else if !names.insert(name.text()) {
                name.duplicate();
            }
        }
        match port.at("containerPort").int().unwrap_or_default() {
            0 => port.at("containerPort").required(""),
            number => port.at("containerPort").all_good(port_number(number)),
        }
        if let Some(number) = port.at("hostPort").int().filter(|number| *number != 0) {
            port.at("hostPort").all_good(port_number(number));
        }
        port.at("protocol").required_one_of(&PROTOCOLS);
    }
}

/// No two containers may take one port of the host.
fn unique_host_ports<'a>(containers: impl Iterator<Item = FieldRef<'a>>) {
    let mut taken = HashSet::new();
    for container in containers {
        for port in container.each("ports") {
            let number = port.value.int("hostPort").unwrap_or_default();
            if number == 0 {
                continue;
            }
            let place = format!("{}/{}/{number}", port.value.text("protocol"), port.value.text("hostIP"));
            if !taken.insert(place.clone()) {
                port.at("hostPort").with(&json!(place)).duplicate();
            }
        }
    }
}

fn restart_policy(container: &FieldRef<'_>) {
    let policy = container.at("restartPolicy");
    let rules = container.at("restartPolicyRules");
    if policy.is_set() {
        policy.one_of(&["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    if rules.len() > 20 {
        rules.too_long(20);
    }
    for rule in rules.items() {
        rule.at("action").one_of(&["Restart"]);
        if rule.at("exitCodes").is_set() {
            rule.at("exitCodes.operator").one_of(&["In", "NotIn"]);
            if rule.at("exitCodes.values").len() > 255 {
                rule.at("exitCodes.values").too_long(255);
            }
        } else {
            rule.at("exitCodes").required("must be specified");
        }
    }
}

fn resize_policies(policies: &FieldRef<'_>, pod: &Pod<'_>) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let resource = policy.value.text("resourceName");
        if !seen.insert(resource) {
            policy.with(policy.value.at("resourceName")).duplicate();
        }
        policies.with(policy.value.at("resourceName")).required_one_of(&["cpu", "memory"]);
        policies.with(policy.value.at("restartPolicy")).required_one_of(&["NotRequired", "RestartContainer"]);
        if pod.restart_policy == "Never" && policy.value.text("restartPolicy") != "NotRequired" {
            policies
                .with(policy.value.at("restartPolicy"))
                .invalid("must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}
