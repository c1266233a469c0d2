//! Fields that are not allowed for the operating system of a pod (`spec.os`).

use super::facts::ephemeral;
use crate::field_ref::Field;
use coracle_fields::core::v1::{Container, PodSpec};
use serde_json::json;

const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";

/// The fields of a pod that names its operating system.
pub(super) fn check(spec: &Field<'_, PodSpec>) {
    let os = spec.os();
    if !os.is_set() {
        return;
    }
    match os.view().name().text() {
        "" => os.name().required(""),
        "linux" => linux(spec),
        "windows" => windows(spec),
        other => os.with(&json!(other)).unsupported(&["linux", "windows"]),
    }
}

fn containers<'a>(spec: &Field<'a, PodSpec>) -> impl Iterator<Item = Field<'a, Container>> + use<'a> {
    spec.init_containers().items().chain(spec.containers().items()).chain(ephemeral(spec))
}

fn linux(spec: &Field<'_, PodSpec>) {
    let options = std::iter::once(spec.security_context().windows_options());
    for options in options.chain(containers(spec).map(|one| one.security_context().windows_options())) {
        if options.is_set() {
            options.forbidden(NOT_ON_LINUX);
        }
    }
}

/// In upstream's order. Of three fields only a value that is not empty is refused.
fn windows(spec: &Field<'_, PodSpec>) {
    let context = spec.security_context();
    for (field, may_be_empty) in [
        (context.app_armor_profile().erased(), false),
        (context.se_linux_options().erased(), false),
        (spec.host_users().erased(), false),
        (spec.host_pid().erased(), true),
        (spec.host_ipc().erased(), true),
        (context.seccomp_profile().erased(), false),
        (context.fs_group().erased(), false),
        (context.fs_group_change_policy().erased(), false),
        (context.sysctls().erased(), true),
        (spec.share_process_namespace().erased(), false),
        (context.run_as_user().erased(), false),
        (context.run_as_group().erased(), false),
        (context.supplemental_groups().erased(), false),
        (context.supplemental_groups_policy().erased(), false),
        (context.se_linux_change_policy().erased(), false),
    ] {
        if field.is_set() && !(may_be_empty && field.is_empty()) {
            field.forbidden(NOT_ON_WINDOWS);
        }
    }
    for container in containers(spec) {
        let context = container.security_context();
        for field in [
            context.app_armor_profile().erased(),
            context.se_linux_options().erased(),
            context.seccomp_profile().erased(),
            context.capabilities().erased(),
            context.read_only_root_filesystem().erased(),
            context.privileged().erased(),
            context.allow_privilege_escalation().erased(),
            context.proc_mount().erased(),
            context.run_as_user().erased(),
            context.run_as_group().erased(),
        ] {
            if field.is_set() {
                field.forbidden(NOT_ON_WINDOWS);
            }
        }
    }
}
