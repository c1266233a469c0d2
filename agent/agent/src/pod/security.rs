//! Builds CRI security contexts. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile,
    SecurityContext,
};

use super::spec;

const MASKED: [&str; 13] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/sys/devices/system/cpu/cpu0/thermal_throttle",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// User of the image configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Numeric user.
    pub uid: Option<i64>,
    /// User name, when it is not a number.
    pub name: String,
}

/// Violations of `runAsNonRoot`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SecurityError {
    /// The spec itself asks for root.
    #[error("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})")]
    UserIsRoot {
        /// Pod, as `name_namespace(uid)`.
        pod: String,
        /// Container.
        container: String,
    },
    /// The image runs as root.
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    ImageIsRoot {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The image names a user whose number cannot be known.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    ImageUserUnknown {
        /// User.
        user: String,
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
}

/// An AppArmor annotation that names no profile.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid AppArmor profile name: {name:?}")]
pub struct AppArmorError {
    /// The annotation's value.
    pub name: String,
}

/// The pod as it appears in messages: `name_namespace(uid)`.
pub fn pod_text(pod: &Pod) -> String {
    format!("{}_{}({})", spec::name(pod), spec::namespace(pod), spec::uid(pod))
}

/// Checks `runAsNonRoot` against the spec and the image.
pub fn verify_non_root(pod: &Pod, container: &Container, image: &ImageUser) -> Result<(), SecurityError> {
    let (of_pod, of_container) = contexts(pod, container);
    if of_container.run_as_non_root.or(of_pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let (pod, container) = (pod_text(pod), container.name.clone());
    match of_container.run_as_user.or(of_pod.run_as_user) {
        Some(0) => Err(SecurityError::UserIsRoot { pod, container }),
        Some(_) => Ok(()),
        None => match (image.uid, image.name.as_str()) {
            (Some(0), _) | (None, "") => Err(SecurityError::ImageIsRoot { pod, container }),
            (Some(_), _) => Ok(()),
            (None, user) => Err(SecurityError::ImageUserUnknown { user: user.to_owned(), pod, container }),
        },
    }
}

fn contexts(pod: &Pod, container: &Container) -> (PodSecurityContext, SecurityContext) {
    (
        spec::spec(pod).security_context.clone().unwrap_or_default(),
        container.security_context.clone().unwrap_or_default(),
    )
}

/// Namespaces of the pod's processes; `target` is the container id an ephemeral container looks at.
pub fn namespaces(pod: &Pod, target: Option<&str>) -> cri::NamespaceOption {
    let spec = spec::spec(pod);
    let mode = |host: Option<bool>, other: cri::NamespaceMode| {
        if host == Some(true) { cri::NamespaceMode::Node as i32 } else { other as i32 }
    };
    let shared = if spec.share_process_namespace == Some(true) {
        cri::NamespaceMode::Pod
    } else {
        cri::NamespaceMode::Container
    };
    let mut options = cri::NamespaceOption {
        network: mode(spec.host_network, cri::NamespaceMode::Pod),
        ipc: mode(spec.host_ipc, cri::NamespaceMode::Pod),
        pid: mode(spec.host_pid, shared),
        ..cri::NamespaceOption::default()
    };
    if let Some(target) = target {
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id = target.to_owned();
    }
    options
}

/// The security context of a container. Without a seccomp profile it gets the runtime's default one, or none if
/// `seccomp_default` is false.
pub fn container(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    target: Option<&str>,
    seccomp_default: bool,
) -> cri::LinuxContainerSecurityContext {
    let (of_pod, own) = contexts(pod, container);
    let privileged = own.privileged == Some(true);
    let user = own.run_as_user.or(of_pod.run_as_user);
    let seccomp = own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref());
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked") || privileged;
    let paths =
        |list: &[&str]| if unmasked { vec![] } else { list.iter().map(|path| (*path).to_owned()).collect() };
    cri::LinuxContainerSecurityContext {
        capabilities: Some(capabilities(own.capabilities.as_ref())),
        privileged,
        namespace_options: Some(namespaces(pod, target)),
        selinux_options: selinux(own.se_linux_options.as_ref().or(of_pod.se_linux_options.as_ref())),
        run_as_user: user.or(image.uid).map(|value| cri::Int64Value { value }),
        run_as_username: if user.is_none() && image.uid.is_none() {
            image.name.clone()
        } else {
            String::new()
        },
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(|value| cri::Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&of_pod),
        supplemental_groups_policy: groups_policy(&of_pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(if privileged { unconfined() } else { seccomp_profile(seccomp, seccomp_default) }),
        // A name that is not one is not loaded either, and the runtime says so.
        apparmor: apparmor(pod, container).unwrap_or_else(|error| Some(localhost(error.name))),
        ..cri::LinuxContainerSecurityContext::default()
    }
}

/// The security context of a sandbox.
pub fn sandbox(pod: &Pod) -> cri::LinuxSandboxSecurityContext {
    let spec = spec::spec(pod);
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let privileged = spec::containers(&spec)
        .any(|(_, c)| c.security_context.as_ref().is_some_and(|context| context.privileged == Some(true)));
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, None)),
        selinux_options: selinux(of_pod.se_linux_options.as_ref()),
        run_as_user: of_pod.run_as_user.map(|value| cri::Int64Value { value }),
        run_as_group: of_pod
            .run_as_group
            .filter(|_| of_pod.run_as_user.is_some())
            .map(|value| cri::Int64Value { value }),
        supplemental_groups: groups(&of_pod),
        supplemental_groups_policy: groups_policy(&of_pod),
        privileged,
        seccomp: Some(cri::SecurityProfile {
            profile_type: cri::security_profile::ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        }),
        ..cri::LinuxSandboxSecurityContext::default()
    }
}

fn groups(of_pod: &PodSecurityContext) -> Vec<i64> {
    of_pod.fs_group.into_iter().chain(of_pod.supplemental_groups.clone().unwrap_or_default()).collect()
}

fn groups_policy(of_pod: &PodSecurityContext) -> i32 {
    match of_pod.supplemental_groups_policy.as_deref() {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict as i32,
        _ => cri::SupplementalGroupsPolicy::Merge as i32,
    }
}

fn capabilities(from: Option<&Capabilities>) -> cri::Capability {
    let list = |list: Option<&Vec<String>>| list.cloned().unwrap_or_default();
    cri::Capability {
        add_capabilities: list(from.and_then(|from| from.add.as_ref())),
        drop_capabilities: list(from.and_then(|from| from.drop.as_ref())),
        ..cri::Capability::default()
    }
}

fn selinux(from: Option<&SELinuxOptions>) -> Option<cri::SeLinuxOption> {
    let from = from?;
    Some(cri::SeLinuxOption {
        user: from.user.clone().unwrap_or_default(),
        role: from.role.clone().unwrap_or_default(),
        r#type: from.type_.clone().unwrap_or_default(),
        level: from.level.clone().unwrap_or_default(),
    })
}

fn unconfined() -> cri::SecurityProfile {
    cri::SecurityProfile {
        profile_type: cri::security_profile::ProfileType::Unconfined as i32,
        localhost_ref: String::new(),
    }
}

fn seccomp_profile(from: Option<&SeccompProfile>, default: bool) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (kind, path) = match from.map(|from| (from.type_.as_str(), from.localhost_profile.clone())) {
        Some(("Unconfined", _)) => (ProfileType::Unconfined, String::new()),
        Some(("Localhost", path)) => (ProfileType::Localhost, path.unwrap_or_default()),
        None if !default => (ProfileType::Unconfined, String::new()),
        _ => (ProfileType::RuntimeDefault, String::new()),
    };
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref: path }
}

/// Annotation of a container's AppArmor profile, before there was a field.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The AppArmor profile of a container: its own, its pod's, or its annotation's.
/// The annotation comes last, because fields of a spec are fixed more strictly than annotations.
pub fn apparmor(pod: &Pod, container: &Container) -> Result<Option<cri::SecurityProfile>, AppArmorError> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let annotated = spec::annotation(pod, &format!("{APPARMOR_ANNOTATION}{}", container.name));
    let spec = spec::spec(pod);
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    match (own.or(of_pod), annotated) {
        (Some(profile), _) => Ok(Some(apparmor_profile(profile))),
        (None, Some("unconfined")) => Ok(Some(unconfined())),
        (None, Some("runtime/default")) => Ok(Some(cri::SecurityProfile::default())),
        (None, Some(text)) => match text.strip_prefix("localhost/") {
            Some(name) if !name.is_empty() => Ok(Some(localhost(name.to_owned()))),
            _ => Err(AppArmorError { name: text.to_owned() }),
        },
        (None, None) => Ok(None),
    }
}

fn localhost(name: String) -> cri::SecurityProfile {
    let kind = cri::security_profile::ProfileType::Localhost;
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref: name }
}

fn apparmor_profile(from: &AppArmorProfile) -> cri::SecurityProfile {
    match from.type_.as_str() {
        "Unconfined" => unconfined(),
        "Localhost" => localhost(from.localhost_profile.clone().unwrap_or_default()),
        // The runtime's default.
        _ => cri::SecurityProfile::default(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn one(pod_context: Value, context: Value) -> (Pod, Container) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"securityContext": pod_context, "containers": [{"name": "c", "securityContext": context}]}}))
        .unwrap();
        let container = spec::spec(&pod).containers[0].clone();
        (pod, container)
    }

    #[test]
    fn non_root_is_checked_against_spec_and_image() {
        let user = |uid, name: &str| ImageUser { uid, name: name.into() };
        for (of_pod, own, image, want) in [
            (json!({}), json!({}), user(Some(0), ""), None),
            (json!({"runAsNonRoot": true}), json!({}), user(Some(1000), ""), None),
            (json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false}), user(Some(0), ""), None),
            (
                json!({"runAsNonRoot": true}),
                json!({}),
                user(None, ""),
                Some(
                    "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)",
                ),
            ),
            (
                json!({"runAsNonRoot": true}),
                json!({}),
                user(None, "nginx"),
                Some(
                    "container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root (pod: \"p_ns(u)\", container: c)",
                ),
            ),
            (
                json!({"runAsUser": 0}),
                json!({"runAsNonRoot": true}),
                user(None, ""),
                Some("container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)"),
            ),
        ] {
            let (pod, c) = one(of_pod.clone(), own);
            let got = verify_non_root(&pod, &c, &image).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), want, "{of_pod}");
        }
    }

    #[test]
    fn the_seccomp_default_can_be_switched_off() {
        use cri::security_profile::ProfileType;
        for (context, default, want) in [
            (json!({}), true, ProfileType::RuntimeDefault),
            (json!({}), false, ProfileType::Unconfined),
            (json!({"seccompProfile": {"type": "RuntimeDefault"}}), false, ProfileType::RuntimeDefault),
            (json!({"seccompProfile": {"type": "Unconfined"}}), true, ProfileType::Unconfined),
        ] {
            let (pod, c) = one(json!({}), context.clone());
            let got = container(&pod, &c, &ImageUser::default(), None, default);
            assert_eq!(got.seccomp.unwrap().profile_type(), want, "{context} {default}");
        }
    }

    #[test]
    fn container_overrides_pod_and_defaults_are_safe() {
        let (pod, c) = one(
            json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}),
            json!({"runAsUser": 10, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}),
        );
        let got = container(&pod, &c, &ImageUser { uid: Some(5), name: String::new() }, None, true);
        assert_eq!(got.run_as_user.unwrap().value, 10);
        assert_eq!(got.run_as_group.unwrap().value, 2);
        assert_eq!(got.supplemental_groups, [3, 4]);
        assert!(got.no_new_privs && got.readonly_rootfs && !got.privileged);
        assert_eq!(
            got.seccomp.unwrap().profile_type,
            cri::security_profile::ProfileType::RuntimeDefault as i32
        );
        assert!(!got.masked_paths.is_empty());
        let (pod, c) = one(json!({}), json!({"privileged": true}));
        let got = container(&pod, &c, &ImageUser::default(), None, true);
        assert_eq!(got.seccomp.unwrap().profile_type, cri::security_profile::ProfileType::Unconfined as i32);
        assert!(got.masked_paths.is_empty() && sandbox(&pod).privileged);
        let (mut pod, c) = one(json!({"appArmorProfile": {"type": "RuntimeDefault"}}), json!({}));
        use cri::security_profile::ProfileType;
        let kind = |pod: &Pod| apparmor(pod, &c).unwrap().unwrap().profile_type();
        assert_eq!(kind(&pod), ProfileType::RuntimeDefault);
        pod.metadata.annotations =
            Some([(format!("{APPARMOR_ANNOTATION}c"), "unconfined".to_owned())].into());
        assert_eq!(kind(&pod), ProfileType::RuntimeDefault, "fields take precedence over the annotation");
        pod.spec.as_mut().unwrap().security_context = None;
        assert_eq!(kind(&pod), ProfileType::Unconfined, "the annotation counts without fields");
    }
}
