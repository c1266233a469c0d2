//! Fields that are not allowed for the operating system of a pod (`spec.os`).

use crate::field_ref::FieldRef;
use crate::tree::Tree;
use serde_json::json;

const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";

/// What a Windows pod's context cannot say, in upstream's order: the field, and whether it stands beside the context.
const POD: [(&str, bool); 15] = [
    ("appArmorProfile", false),
    ("seLinuxOptions", false),
    ("hostUsers", true),
    ("hostPID", true),
    ("hostIPC", true),
    ("seccompProfile", false),
    ("fsGroup", false),
    ("fsGroupChangePolicy", false),
    ("sysctls", false),
    ("shareProcessNamespace", true),
    ("runAsUser", false),
    ("runAsGroup", false),
    ("supplementalGroups", false),
    ("supplementalGroupsPolicy", false),
    ("seLinuxChangePolicy", false),
];

const CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The fields of a pod that names its operating system.
pub(super) fn check(spec: &FieldRef<'_>) {
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    match os.value.text("name") {
        "" => os.at("name").required(""),
        "linux" => linux(spec),
        "windows" => windows(spec),
        other => os.with(&json!(other)).unsupported(&["linux", "windows"]),
    }
}

fn containers<'a>(spec: &FieldRef<'a>) -> impl Iterator<Item = FieldRef<'a>> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.map(|list| spec.at(list)).into_iter().flat_map(|list| list.items())
}

fn linux(spec: &FieldRef<'_>) {
    let contexts = std::iter::once(spec.at("securityContext"));
    for context in contexts.chain(containers(spec).map(|container| container.at("securityContext"))) {
        if context.at("windowsOptions").is_set() {
            context.at("windowsOptions").forbidden(NOT_ON_LINUX);
        }
    }
}

fn windows(spec: &FieldRef<'_>) {
    for (field, beside) in POD {
        let entry = if beside { spec.at(field) } else { spec.at("securityContext").at(field) };
        let asked = match field {
            "hostPID" | "hostIPC" | "sysctls" => !entry.is_empty(),
            _ => entry.is_set(),
        };
        if asked {
            entry.forbidden(NOT_ON_WINDOWS);
        }
    }
    for container in containers(spec) {
        for field in CONTAINER.map(|field| container.at("securityContext").at(field)) {
            if field.is_set() {
                field.forbidden(NOT_ON_WINDOWS);
            }
        }
    }
}
