//! Environment variables and where their values come from.

use crate::field_ref::FieldRef;
use crate::names::subdomain;
use crate::tree::Tree;
use coracle_proto::names::{config_map_key, dns1123_subdomain, env_var_name, qualified_name};
use coracle_proto::quantity::Quantity;

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that files of a downward API volume may hold.
pub(super) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn variables(list: &FieldRef<'_>) {
    for variable in list.items() {
        variable.at("name").named(env_var_name);
        value_from(&variable);
    }
}

fn value_from(variable: &FieldRef<'_>) {
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut sources = 0;
    let mut source = |key: &str, rule: &dyn Fn(&FieldRef<'_>)| {
        let entry = from.at(key);
        if entry.is_set() {
            sources += 1;
            rule(&entry);
        }
    };
    source("fieldRef", &|entry| field(entry, &ENV_FIELDS));
    source("resourceFieldRef", &|entry| resource_field(entry, false));
    source("configMapKeyRef", &key_of);
    source("secretKeyRef", &key_of);
    source("fileKeyRef", &|entry| {
        entry.at("key").named(env_var_name);
        entry.at("volumeName").has_text("");
        entry.at("path").has_text("");
    });
    if sources == 0 {
        from.invalid_as(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.at("value").is_empty() {
        from.invalid_as("", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        from.invalid_as("", "may not have more than one field specified at a time");
    }
}

pub(super) fn sources(list: &FieldRef<'_>) {
    for item in list.items() {
        if !item.at("prefix").is_empty() {
            item.at("prefix").follows(env_var_name);
        }
        let mut sources = 0;
        for key in ["configMapRef", "secretRef"] {
            if item.at(key).is_set() {
                sources += 1;
                let name = item.at(key).at("name");
                if name.has_text("") {
                    name.all_good(subdomain(name.text(), true));
                }
            }
        }
        if sources == 0 {
            list.invalid_as("", "must specify one of: `configMapRef` or `secretRef`");
        } else if sources > 1 {
            list.invalid_as("", "may not have more than one field specified at a time");
        }
    }
}

fn key_of(reference: &FieldRef<'_>) {
    let name = reference.at("name");
    for message in dns1123_subdomain(name.text()) {
        name.invalid_as(name.text(), message);
    }
    reference.at("key").named(config_map_key);
}

/// A field of the pod, by path.
pub(super) fn field(reference: &FieldRef<'_>, allowed: &[&str]) {
    if !reference.at("apiVersion").has_text("") || !reference.at("fieldPath").has_text("") {
        return;
    }
    let path = reference.at("fieldPath");
    if reference.value.text("apiVersion") != "v1" {
        let version = reference.value.text("apiVersion");
        return path.invalid(format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    if let Some((base, key)) = path.text().strip_suffix("']").and_then(|text| text.split_once("['")) {
        match base {
            "metadata.annotations" => reference_key(reference, &key.to_lowercase()),
            "metadata.labels" => reference_key(reference, key),
            other => reference.invalid_as(other, "does not support subscript"),
        }
        return;
    }
    let known = ENV_FIELDS.contains(&path.text())
        || VOLUME_FIELDS.contains(&path.text())
        || matches!(path.text(), "spec.host" | "spec.restartPolicy" | "status.phase");
    if !known {
        let text = path.text();
        path.invalid(format!("error converting fieldPath: field label not supported: {text}"));
    } else if !allowed.contains(&path.text()) {
        path.unsupported(allowed);
    }
}

fn reference_key(reference: &FieldRef<'_>, key: &str) {
    for message in qualified_name(key) {
        reference.invalid_as(key, message);
    }
}

/// A resource of a container, by path.
pub(super) fn resource_field(reference: &FieldRef<'_>, in_volume: bool) {
    let resource = reference.at("resource");
    let huge = resource.text().starts_with("requests.hugepages-")
        || resource.text().starts_with("limits.hugepages-");
    if in_volume && reference.at("containerName").is_empty() {
        reference.at("containerName").required("");
    } else if resource.text().is_empty() {
        resource.required("");
    } else if !huge && !RESOURCES.contains(&resource.text()) {
        resource.unsupported(&RESOURCES);
    }
    let divisor = match reference.value.text("divisor").parse::<Quantity>() {
        Ok(divisor) if !divisor.is_zero() => divisor.to_string(),
        _ => return,
    };
    let sizes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let report = |text: String| reference.at("divisor").invalid_as(resource.text(), text);
    match resource.text().split_once('.').map(|(_, name)| name) {
        Some("cpu") if !["1m", "1"].contains(&divisor.as_str()) => {
            report("only divisor's values 1m and 1 are supported with the cpu resource".into());
        }
        Some("memory") if !SIZES.contains(&divisor.as_str()) => report(format!("{sizes} memory resource")),
        Some("ephemeral-storage") if !SIZES.contains(&divisor.as_str()) => {
            report(format!("{sizes} local ephemeral storage resource"));
        }
        _ if huge && !SIZES.contains(&divisor.as_str()) => report(format!("{sizes} hugepages resource")),
        _ => {}
    }
}
