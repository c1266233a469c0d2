//! Environment variables and where their values come from.

use super::facts::{PodFacts, ephemeral};
use super::paths::no_backsteps;
use crate::field_ref::{Field, FieldRef};
use crate::field_rules::TextRules as _;
use crate::names::subdomain;
use coracle_fields::core::v1::{EnvFromSource, EnvVar, ObjectFieldSelector, PodSpec, ResourceFieldSelector};
use coracle_fields::{List, Text};
use coracle_proto::names::{config_map_key, dns1123_label, dns1123_subdomain, env_var_name, qualified_name};
use coracle_proto::quantity::Quantity;
use serde_json::json;

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

pub(super) fn variables(list: &Field<'_, List<EnvVar>>) {
    for variable in list.items() {
        variable.name().named(env_var_name);
        value_from(&variable);
    }
}

fn value_from(variable: &Field<'_, EnvVar>) {
    let from = variable.value_from();
    if !from.is_set() {
        return;
    }
    let mut sources = 0;
    if from.field_ref().is_set() {
        sources += 1;
        field(&from.field_ref(), &ENV_FIELDS);
    }
    if from.resource_field_ref().is_set() {
        sources += 1;
        resource_field(&from.resource_field_ref(), false);
    }
    let (config_map, secret) = (from.config_map_key_ref(), from.secret_key_ref());
    if config_map.is_set() {
        sources += 1;
        key_of(&config_map.name(), &config_map.key());
    }
    if secret.is_set() {
        sources += 1;
        key_of(&secret.name(), &secret.key());
    }
    let file = from.file_key_ref();
    if file.is_set() {
        sources += 1;
        file.key().named(env_var_name);
        file.volume_name().named(dns1123_label);
        if file.path().has_text("") && !no_backsteps(file.path().text()) {
            file.path().invalid("must not contain '..'");
        }
    }
    if sources == 0 {
        from.invalid_as(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.value().is_empty() {
        from.invalid_as("", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        from.invalid_as("", "may not have more than one field specified at a time");
    }
}

/// Files of variables are in volumes that the pod has and that are made for it: the node reads them.
pub(super) fn files(spec: &Field<'_, PodSpec>, pod: &PodFacts<'_>) {
    let containers = spec.init_containers().items().chain(spec.containers().items());
    for container in containers.chain(ephemeral(spec)) {
        for variable in container.env().items() {
            let file = variable.value_from().file_key_ref();
            if !file.is_set() {
                continue;
            }
            let name = file.volume_name();
            match pod.volumes.get(name.text()) {
                None => name.with(&json!(name.text())).not_found(),
                Some(volume) if !volume.empty_dir().is_set() => {
                    name.invalid("referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

pub(super) fn sources(list: &Field<'_, List<EnvFromSource>>) {
    for item in list.items() {
        if !item.prefix().is_empty() {
            item.prefix().follows(env_var_name);
        }
        let (config_map, secret) = (item.config_map_ref(), item.secret_ref());
        let mut sources = 0;
        for (is_set, name) in [(config_map.is_set(), config_map.name()), (secret.is_set(), secret.name())] {
            if is_set {
                sources += 1;
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

fn key_of(name: &Field<'_, Text>, key: &Field<'_, Text>) {
    for message in dns1123_subdomain(name.text()) {
        name.invalid_as(name.text(), message);
    }
    key.named(config_map_key);
}

/// A field of the pod, by path.
pub(super) fn field(reference: &Field<'_, ObjectFieldSelector>, allowed: &[&str]) {
    let (version, path) = (reference.api_version(), reference.field_path());
    if !version.has_text("") || !path.has_text("") {
        return;
    }
    let version = version.text();
    if version != "v1" {
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
pub(super) fn resource_field(reference: &Field<'_, ResourceFieldSelector>, in_volume: bool) {
    let resource = reference.resource();
    let huge = resource.text().starts_with("requests.hugepages-")
        || resource.text().starts_with("limits.hugepages-");
    if in_volume && reference.container_name().is_empty() {
        reference.container_name().required("");
    } else if resource.text().is_empty() {
        resource.required("");
    } else if !huge && !RESOURCES.contains(&resource.text()) {
        resource.unsupported(&RESOURCES);
    }
    let divisor = match reference.view().divisor().text().parse::<Quantity>() {
        Ok(divisor) if !divisor.is_zero() => divisor.to_string(),
        _ => return,
    };
    let sizes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let report = |text: String| reference.divisor().invalid_as(resource.text(), text);
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
