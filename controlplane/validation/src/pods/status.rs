//! Changes of a pod's status.

use super::updates::fixed_annotations;
use crate::field_ref::{FieldRef, walk};
use crate::names::is_ip;
use crate::tree::Tree;
use coracle_proto::names::{dns1123_subdomain, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::net::IpAddr;

/// A change of `/status`.
pub fn status_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        fixed_annotations(&root.at("metadata.annotations"), old.at("metadata.annotations"));
        let status = root.at("status");
        for condition in status.each("conditions") {
            negative_generation(&condition.at("observedGeneration"));
            if !matches!(condition.value.text("type"), "PodScheduled" | "Ready" | "Initialized") {
                condition.at("Type").with(condition.value.at("type")).follows(qualified_name);
            }
        }
        negative_generation(&status.at("observedGeneration"));
        let nominated = status.at("nominatedNodeName");
        if !nominated.is_empty() && nominated.value != old.at("status.nominatedNodeName") {
            nominated.follows(dns1123_subdomain);
        }
        if old.has("status.qosClass") {
            status.at("qosClass").immutable(old.at("status.qosClass"));
        }
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            transitions(&status.at(list), old.at("status").items(list), list, old.at("spec"));
        }
        addresses(&status.at("podIPs"));
        let hosts = status.at("hostIPs");
        if let Some(first) = hosts.items().next() {
            if first.value.text("ip") != status.value.text("hostIP") {
                first.at("ip").invalid("must be equal to `hostIP`");
            }
            addresses(&hosts);
        }
    });
}

fn negative_generation(field: &FieldRef<'_>) {
    if field.int().is_some_and(|number| number < 0) {
        field.invalid("must be a non-negative integer");
    }
}

/// At most one address of each family.
fn addresses(list: &FieldRef<'_>) {
    let mut families = Vec::new();
    for item in list.items() {
        if let Some(address) = is_ip(&item.with(item.value.at("ip"))) {
            families.push(IpAddr::is_ipv4(&address));
        }
    }
    if list.len() > 1 && (list.len() > 2 || families.windows(2).any(|pair| pair[0] == pair[1])) {
        list.invalid("may specify no more than one IP for each IP family");
    }
}

/// A container that ended stays ended, unless it is to be restarted.
fn transitions(new: &FieldRef<'_>, old: &[Value], list: &str, spec: &Value) {
    for (index, before) in old.iter().enumerate() {
        if !before.has("state.terminated") {
            continue;
        }
        let name = before.text("name");
        let Some(after) = new.items().find(|status| status.value.text("name") == name) else { continue };
        let code = before.int("state.terminated.exitCode").unwrap_or_default();
        if !after.value.has("state.terminated") && !may_restart(list, name, code, spec) {
            let path = format!("{}[{index}].state", new.path());
            new.report(FieldError::forbidden(path, "may not be transitioned to non-terminated state"));
        }
    }
}

fn may_restart(list: &str, name: &str, code: i64, spec: &Value) -> bool {
    let containers = match list {
        "containerStatuses" => spec.items("containers"),
        "initContainerStatuses" => spec.items("initContainers"),
        _ => return false,
    };
    let Some(container) = containers.iter().find(|container| container.text("name") == name) else {
        return false;
    };
    for rule in container.items("restartPolicyRules") {
        let listed = rule.items("exitCodes.values").iter().any(|value| value.as_i64() == Some(code));
        let matches = listed == (rule.text("exitCodes.operator") == "In");
        if matches && rule.text("action") == "Restart" {
            return true;
        }
    }
    let own = container.text("restartPolicy");
    match if own.is_empty() { spec.text("restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}
