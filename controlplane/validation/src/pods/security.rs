//! Security contexts of pods and containers.

use super::facts::PodFacts;
use super::paths::descending;
use crate::field_ref::{Field, reported_at};
use crate::field_rules::TextRules as _;
use coracle_fields::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};
use coracle_fields::{Int64, List, View};
use coracle_proto::names::user_id;
use std::collections::HashSet;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

pub(super) fn pod_context(context: &Field<'_, PodSecurityContext>, spec: &Field<'_, PodSpec>) {
    for field in [context.fs_group(), context.run_as_user(), context.run_as_group()] {
        id(&field);
    }
    context.supplemental_groups().items().for_each(|group| id(&group));
    if spec.view().share_process_namespace().flag() && spec.view().host_pid().flag() {
        // Upstream reports it at the security context.
        let shared = reported_at(spec, context).share_process_namespace();
        shared.invalid_as(true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(&context.sysctls(), spec);
    for (field, values) in [
        (context.fs_group_change_policy(), ["Always", "OnRootMismatch"]),
        (context.supplemental_groups_policy(), ["Merge", "Strict"]),
        (context.se_linux_change_policy(), ["MountOption", "Recursive"]),
    ] {
        if field.is_set() {
            field.one_of(&values);
        }
    }
    seccomp(&context.seccomp_profile());
    app_armor(&context.app_armor_profile());
}

/// Upstream takes `MountOption` only with the feature `SELinuxMount`, which is off, or where a policy was before.
pub(super) fn new_label_policy(spec: &Field<'_, PodSpec>, before: Option<View<'_, PodSpec>>) {
    let policy = spec.security_context().se_linux_change_policy();
    let had = before.is_some_and(|spec| spec.security_context().se_linux_change_policy().is_set());
    if policy.text() == "MountOption" && !had {
        policy.unsupported(&["Recursive"]);
    }
}

fn sysctls(list: &Field<'_, List<Sysctl>>, spec: &Field<'_, PodSpec>) {
    let mut seen = HashSet::new();
    for item in list.items() {
        let name = item.name();
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
        if spec.view().host_network().flag() && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true");
        } else if spec.view().host_ipc().flag() && of_ipc {
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

pub(super) fn context(context: &Field<'_, SecurityContext>, pod: &PodFacts<'_>) {
    if !context.is_set() {
        return;
    }
    id(&context.run_as_user());
    id(&context.run_as_group());
    let proc_mount = context.proc_mount();
    if proc_mount.is_set() {
        proc_mount.one_of(&["Default", "Unmasked"]);
        if pod.host_users && proc_mount.text() == "Unmasked" {
            proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(&context.seccomp_profile());
    if context.view().allow_privilege_escalation().get() == Some(false) {
        if context.view().privileged().flag() {
            context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if context.view().capabilities().add().has("CAP_SYS_ADMIN") {
            context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    app_armor(&context.app_armor_profile());
}

fn seccomp(profile: &Field<'_, SeccompProfile>) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.type_(), profile.localhost_profile());
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

fn app_armor(profile: &Field<'_, AppArmorProfile>) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.type_(), profile.localhost_profile());
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

/// A user or group id, when there is one.
fn id(field: &Field<'_, Int64>) {
    if let Some(number) = field.int() {
        field.all_good(user_id(number));
    }
}
