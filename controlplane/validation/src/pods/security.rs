//! Security contexts of pods and containers.

use super::volumes::descending;
use super::{Pod, id};
use crate::field_ref::FieldRef;
use crate::tree::Tree;
use std::collections::HashSet;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

pub(super) fn pod_context(context: &FieldRef<'_>, spec: &FieldRef<'_>) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context.at(field));
    }
    context.each("supplementalGroups").for_each(|group| id(&group));
    if spec.value.flag("shareProcessNamespace") && spec.value.flag("hostPID") {
        context
            .at("shareProcessNamespace")
            .invalid_as(true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(&context.at("sysctls"), spec);
    for (field, values) in [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if context.at(field).is_set() {
            context.at(field).one_of(&values);
        }
    }
    seccomp(&context.at("seccompProfile"));
    app_armor(&context.at("appArmorProfile"));
}

fn sysctls(list: &FieldRef<'_>, spec: &FieldRef<'_>) {
    let mut seen = HashSet::new();
    for item in list.items() {
        let name = item.at("name");
        if name.text().is_empty() {
            name.required("");
        } else if !is_sysctl(name.text()) {
            name.invalid(
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if !seen.insert(name.text()) {
            name.duplicate();
        }
        let dotted = name.text().replace('/', ".");
        let of_ipc =
            ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|p| dotted.starts_with(p));
        if spec.value.flag("hostNetwork") && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true");
        } else if spec.value.flag("hostIPC") && of_ipc {
            name.invalid("may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253 && name.split(['.', '/']).all(|part| {
        let bytes = part.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inner(*first) && inner(*last))
            && bytes.iter().all(|b| inner(*b) || matches!(b, b'-' | b'_'))
    })
}

pub(super) fn context(context: &FieldRef<'_>, pod: &Pod<'_>) {
    if !context.is_set() {
        return;
    }
    id(&context.at("runAsUser"));
    id(&context.at("runAsGroup"));
    let proc_mount = context.at("procMount");
    if proc_mount.is_set() {
        proc_mount.one_of(&["Default", "Unmasked"]);
        if pod.host_users && proc_mount.text() == "Unmasked" {
            proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(&context.at("seccompProfile"));
    if context.value.at("allowPrivilegeEscalation").as_bool() == Some(false) {
        if context.value.flag("privileged") {
            context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if context.value.items("capabilities.add").iter().any(|name| name == "CAP_SYS_ADMIN") {
            context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    app_armor(&context.at("appArmorProfile"));
}

fn seccomp(profile: &FieldRef<'_>) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.has_text("type is required when seccompProfile is set") {
        kind.one_of(&PROFILES);
    }
    if kind.text() == "Localhost" {
        if local.is_set() {
            descending(&local);
        } else {
            local.required("must be set when seccomp type is Localhost");
        }
    } else if local.is_set() {
        local.with(profile.value).invalid("can only be set when seccomp type is Localhost");
    }
}

fn app_armor(profile: &FieldRef<'_>) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.has_text("type is required when appArmorProfile is set") {
        kind.one_of(&PROFILES);
    }
    if kind.text() == "Localhost" {
        if local.text().trim().is_empty() {
            local.required("must be set when AppArmor type is Localhost");
        } else if local.text().trim() != local.text() {
            local.invalid("must not be padded with whitespace");
        }
        if local.text().len() > 4095 {
            local.too_long(4095);
        }
    } else if local.is_set() {
        local.invalid("can only be set when AppArmor type is Localhost");
    }
}
