//! The checks of the baseline level.

use super::pod::{Finding, Pod, Texts, containers, joined, plural, setters};
use coracle_fields::View;
use coracle_fields::core::v1::{
    AppArmorProfile, Container, SELinuxOptions, SeccompProfile, WindowsSecurityContextOptions,
};
use coracle_proto::sysctls::SAFE;

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Whether an annotation chooses an AppArmor or seccomp profile.
pub(super) fn chooses_profile(key: &str) -> bool {
    key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR)
}

/// Profiles that switch AppArmor off.
pub fn app_armor(pod: &Pod<'_>) -> Option<Finding> {
    let bad = |profile: View<'_, AppArmorProfile>| {
        let kind = profile.type_().get().filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        kind.map(str::to_owned)
    };
    let mut values = Texts::new();
    let own = bad(pod.security().app_armor_profile());
    values.extend(own.clone());
    let of = |container: View<'_, Container>| bad(container.security_context().app_armor_profile());
    let named = pod.named(|container| of(container).is_some());
    values.extend(pod.containers().filter_map(of));
    let allowed = |v: &str| v.is_empty() || v == "runtime/default" || v.starts_with("localhost/");
    let annotations: Vec<String> = pod
        .annotations()
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let mut who = Vec::new();
    who.extend(setters(own.is_some(), &named));
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    Finding::new(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), joined(&values)),
    )
}

/// Capabilities that runtimes do not give by themselves.
pub fn capabilities(pod: &Pod<'_>) -> Option<Finding> {
    let bad = |container: View<'_, Container>| -> Texts {
        let added = container.security_context().capabilities().add().texts();
        added.filter(|c| !DEFAULT_CAPABILITIES.contains(c)).map(str::to_owned).collect()
    };
    let named = pod.named(|c| !bad(c).is_empty());
    let found: Texts = pod.containers().flat_map(bad).collect();
    if named.is_empty() {
        return None;
    }
    Finding::new(
        "non-default capabilities",
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&named),
            joined(&found)
        ),
    )
}

/// Namespaces of the host.
pub fn host_namespaces(pod: &Pod<'_>) -> Option<Finding> {
    let fields = [
        ("hostNetwork", pod.spec.host_network()),
        ("hostPID", pod.spec.host_pid()),
        ("hostIPC", pod.spec.host_ipc()),
    ];
    let set = fields.iter().filter(|(_, flag)| flag.get() == Some(true));
    let set: Vec<String> = set.map(|(field, _)| format!("{field}=true")).collect();
    if set.is_empty() { None } else { Finding::new("host namespaces", set.join(", ")) }
}

/// Directories of the host.
pub fn host_paths(pod: &Pod<'_>) -> Option<Finding> {
    let volumes = pod.spec.volumes().items().filter(|volume| volume.host_path().is_object());
    let named: Vec<String> = volumes.map(|volume| volume.name().text().to_owned()).collect();
    if named.is_empty() {
        return None;
    }
    Finding::new(
        "hostPath volumes",
        format!("{} {}", plural("volume", "volumes", named.len()), joined(&named)),
    )
}

/// Ports of the host.
pub fn host_ports(pod: &Pod<'_>) -> Option<Finding> {
    let of = |container: View<'_, Container>| -> Texts {
        let ports = container.ports().items().filter_map(|port| port.host_port().int());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let named = pod.named(|c| !of(c).is_empty());
    let ports: Texts = pod.containers().flat_map(of).collect();
    if named.is_empty() {
        return None;
    }
    let (uses, word) = (plural("uses", "use", named.len()), plural("hostPort", "hostPorts", ports.len()));
    let list = ports.into_iter().collect::<Vec<_>>().join(", ");
    Finding::new("hostPort", format!("{} {uses} {word} {list}", containers(&named)))
}

/// Probes and hooks that ask another host.
pub fn probe_hosts(pod: &Pod<'_>) -> Option<Finding> {
    let of = |container: View<'_, Container>| -> Texts {
        let probes = [container.liveness_probe(), container.readiness_probe(), container.startup_probe()];
        let hooks = [container.lifecycle().post_start(), container.lifecycle().pre_stop()];
        let probes =
            probes.into_iter().flat_map(|probe| [probe.http_get().host(), probe.tcp_socket().host()]);
        let hooks = hooks.into_iter().flat_map(|hook| [hook.http_get().host(), hook.tcp_socket().host()]);
        probes.chain(hooks).filter_map(|host| host.filled()).map(str::to_owned).collect()
    };
    let named: Texts = pod.named(|c| !of(c).is_empty()).into_iter().collect();
    let hosts: Texts = pod.containers().flat_map(of).collect();
    if named.is_empty() {
        return None;
    }
    let named: Vec<String> = named.into_iter().collect();
    let uses = plural("uses", "use", named.len());
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    Finding::new(
        "probe or lifecycle host",
        format!("{} {uses} {word} {}", containers(&named), joined(&hosts)),
    )
}

/// Privileged containers.
pub fn privileged(pod: &Pod<'_>) -> Option<Finding> {
    let named = pod.named(|container| container.security_context().privileged().get() == Some(true));
    if named.is_empty() {
        return None;
    }
    Finding::new("privileged", format!("{} must not set securityContext.privileged=true", containers(&named)))
}

/// All of /proc.
pub fn proc_mount(pod: &Pod<'_>) -> Option<Finding> {
    let of = |container: View<'_, Container>| {
        let mount = container.security_context().proc_mount().get();
        mount.filter(|mount| *mount != "Default").map(str::to_owned)
    };
    let named = pod.named(|c| of(c).is_some());
    let kinds: Texts = pod.containers().filter_map(of).collect();
    if named.is_empty() {
        return None;
    }
    Finding::new(
        "procMount",
        format!("{} must not set securityContext.procMount to {}", containers(&named), joined(&kinds)),
    )
}

/// The same, where it matters.
pub fn proc_mount_outside_user_namespaces(pod: &Pod<'_>) -> Option<Finding> {
    if pod.own_users() { None } else { proc_mount(pod) }
}

fn selinux_types(pod: &Pod<'_>, allowed: &[&str]) -> Option<Finding> {
    let of = |options: View<'_, SELinuxOptions>| -> (Option<String>, bool, bool) {
        let kind = options.type_().get().filter(|kind| !allowed.contains(kind)).map(str::to_owned);
        (kind, options.user().filled().is_some(), options.role().filled().is_some())
    };
    let of_container = |container: View<'_, Container>| of(container.security_context().se_linux_options());
    let bad = |(kind, user, role): &(Option<String>, bool, bool)| kind.is_some() || *user || *role;
    let own = of(pod.security().se_linux_options());
    let named = pod.named(|container| bad(&of_container(container)));
    let who = setters(bad(&own), &named)?;
    let all: Vec<_> = std::iter::once(own).chain(pod.containers().map(of_container)).collect();
    let kinds: Texts = all.iter().filter_map(|(kind, ..)| kind.clone()).collect();
    let mut what = Vec::new();
    if !kinds.is_empty() {
        what.push(format!("{} {}", plural("type", "types", kinds.len()), joined(&kinds)));
    }
    if all.iter().any(|(_, user, _)| *user) {
        what.push("user may not be set".to_owned());
    }
    if all.iter().any(|(_, _, role)| *role) {
        what.push("role may not be set".to_owned());
    }
    Finding::new(
        "seLinuxOptions",
        format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; ")),
    )
}

/// SELinux labels that lead out.
pub fn selinux(pod: &Pod<'_>) -> Option<Finding> {
    selinux_types(pod, &SELINUX_TYPES[..4])
}

/// The same with one type more.
pub fn selinux_1_31(pod: &Pod<'_>) -> Option<Finding> {
    selinux_types(pod, &SELINUX_TYPES)
}

/// Seccomp switched off by annotations, before there was a field.
pub fn seccomp_annotations(pod: &Pod<'_>) -> Option<Finding> {
    let mut keys = Texts::from([SECCOMP_POD.to_owned()]);
    keys.extend(pod.containers().map(|c| format!("{SECCOMP_CONTAINER}{}", c.name().text())));
    let allowed = |v: &str| matches!(v, "runtime/default" | "docker/default") || v.starts_with("localhost/");
    let bad: Vec<String> = pod
        .annotations()
        .filter(|(key, value)| keys.contains(*key) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", bad.len());
    Finding::new("seccompProfile", format!("forbidden {word} {}", bad.join(", ")))
}

/// The type of a seccomp profile, if there is one.
pub(super) fn seccomp_type(profile: View<'_, SeccompProfile>) -> Option<String> {
    profile.is_object().then(|| profile.type_().text().to_owned())
}

/// Whether a seccomp profile keeps anything in.
pub(super) fn confines(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

/// Seccomp switched off.
pub fn seccomp(pod: &Pod<'_>) -> Option<Finding> {
    let bad = |profile: View<'_, SeccompProfile>| seccomp_type(profile).filter(|kind| !confines(kind));
    let of = |container: View<'_, Container>| bad(container.security_context().seccomp_profile());
    let own = bad(pod.security().seccomp_profile());
    let named = pod.named(|container| of(container).is_some());
    let who = setters(own.is_some(), &named)?;
    let kinds: Texts = own.into_iter().chain(pod.containers().filter_map(of)).collect();
    Finding::new(
        "seccompProfile",
        format!("{who} must not set securityContext.seccompProfile.type to {}", joined(&kinds)),
    )
}

fn sysctls_besides(pod: &Pod<'_>, allowed: &[&str]) -> Option<Finding> {
    let set = pod.security().sysctls().items().map(|sysctl| sysctl.name().text());
    let bad: Vec<&str> = set.filter(|name| !allowed.contains(name)).collect();
    if bad.is_empty() { None } else { Finding::new("forbidden sysctls", bad.join(", ")) }
}

/// Kernel settings that others feel.
pub fn sysctls(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_besides(pod, &SAFE[..5])
}

/// As of 1.27.
pub fn sysctls_1_27(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_besides(pod, &SAFE[..6])
}

/// As of 1.29.
pub fn sysctls_1_29(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_besides(pod, &SAFE[..10])
}

/// As of 1.32.
pub fn sysctls_1_32(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_besides(pod, &SAFE)
}

/// Windows containers that are processes of the host.
pub fn host_process(pod: &Pod<'_>) -> Option<Finding> {
    let bad = |options: View<'_, WindowsSecurityContextOptions>| options.host_process().get() == Some(true);
    let named = pod.named(|container| bad(container.security_context().windows_options()));
    let who = setters(bad(pod.security().windows_options()), &named)?;
    Finding::new("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
