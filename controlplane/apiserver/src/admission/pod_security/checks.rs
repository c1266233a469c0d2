//! The checks of the baseline and restricted levels. Each looks at annotations and spec of a pod or template and says, in
//! upstream's words, what is wrong.

use super::pod::{Finding, Pod};
use super::policy::{Level, Standard};
use super::{baseline, restricted};

/// One check as one version of it is written.
pub struct Check {
    /// From which minor version on.
    pub since: u32,
    /// What it finds.
    pub run: fn(&Pod<'_>) -> Option<Finding>,
}

/// A check with its versions, oldest first.
pub struct Rule {
    /// Upstream's id; rules run in this order within their level.
    pub id: &'static str,
    /// The level it belongs to.
    pub level: Level,
    /// Its versions.
    pub versions: &'static [Check],
    /// The baseline rule that it says more strictly.
    pub overrides: &'static str,
}

const fn one(since: u32, run: fn(&Pod<'_>) -> Option<Finding>) -> Check {
    Check { since, run }
}

const fn base(id: &'static str, versions: &'static [Check]) -> Rule {
    Rule { id, level: Level::Baseline, versions, overrides: "" }
}

const fn strict(id: &'static str, versions: &'static [Check], overrides: &'static str) -> Rule {
    Rule { id, level: Level::Restricted, versions, overrides }
}

/// Every rule, in the order in which findings are told.
pub const RULES: &[Rule] = &[
    base("appArmorProfile", &[one(0, baseline::app_armor)]),
    base("capabilities_baseline", &[one(0, baseline::capabilities)]),
    base("hostNamespaces", &[one(0, baseline::host_namespaces)]),
    base("hostPathVolumes", &[one(0, baseline::host_paths)]),
    base("hostPorts", &[one(0, baseline::host_ports)]),
    base("hostProbesAndHostLifecycle", &[one(34, baseline::probe_hosts)]),
    base("privileged", &[one(0, baseline::privileged)]),
    base("procMount", &[one(0, baseline::proc_mount), one(35, baseline::proc_mount_outside_user_namespaces)]),
    base("seLinuxOptions", &[one(0, baseline::selinux), one(31, baseline::selinux_1_31)]),
    base("seccompProfile_baseline", &[one(0, baseline::seccomp_annotations), one(19, baseline::seccomp)]),
    base(
        "sysctls",
        &[
            one(0, baseline::sysctls),
            one(27, baseline::sysctls_1_27),
            one(29, baseline::sysctls_1_29),
            one(32, baseline::sysctls_1_32),
        ],
    ),
    base("windowsHostProcess", &[one(0, baseline::host_process)]),
    strict(
        "allowPrivilegeEscalation",
        &[one(8, restricted::escalation), one(25, |pod| linux(pod, restricted::escalation))],
        "",
    ),
    strict(
        "capabilities_restricted",
        &[one(22, restricted::capabilities), one(25, |pod| linux(pod, restricted::capabilities))],
        "capabilities_baseline",
    ),
    strict("procMount_restricted", &[one(35, baseline::proc_mount)], "procMount"),
    strict("restrictedVolumes", &[one(0, restricted::volumes)], "hostPathVolumes"),
    strict(
        "runAsNonRoot",
        &[one(0, restricted::non_root), one(35, |pod| own_users(pod, restricted::non_root))],
        "",
    ),
    strict(
        "runAsUser",
        &[one(23, restricted::not_user_zero), one(35, |pod| own_users(pod, restricted::not_user_zero))],
        "",
    ),
    strict(
        "seccompProfile_restricted",
        &[one(19, restricted::seccomp), one(25, |pod| linux(pod, restricted::seccomp))],
        "seccompProfile_baseline",
    ),
];

/// Windows has no such thing, and validation keeps it from being set there.
fn linux(pod: &Pod<'_>, run: fn(&Pod<'_>) -> Option<Finding>) -> Option<Finding> {
    if pod.spec.os().name() == "windows" { None } else { run(pod) }
}

/// Root in a user namespace is nobody outside.
fn own_users(pod: &Pod<'_>, run: fn(&Pod<'_>) -> Option<Finding>) -> Option<Finding> {
    if pod.own_users() { None } else { run(pod) }
}

/// The rule's newest version that a standard knows.
fn version(rule: &'static Rule, standard: Standard) -> Option<&'static Check> {
    rule.versions.iter().rev().find(|check| standard.version.has(check.since))
}

/// Everything that a pod does against a standard.
pub fn evaluate(standard: Standard, pod: &Pod<'_>) -> Vec<Finding> {
    let applies = |rule: &&'static Rule| rule.level <= standard.level && version(rule, standard).is_some();
    let overridden =
        |rule: &&'static Rule| RULES.iter().filter(applies).any(|other| other.overrides == rule.id);
    if standard.level == Level::Privileged {
        return Vec::new();
    }
    let rules = RULES.iter().filter(applies).filter(|rule| !overridden(rule));
    rules.filter_map(|rule| version(rule, standard).and_then(|check| (check.run)(pod))).collect()
}

/// Findings as an error tells them: `reason (detail), …`.
pub fn details(findings: &[Finding]) -> String {
    let one = |f: &Finding| {
        if f.detail.is_empty() { f.reason.clone() } else { format!("{} ({})", f.reason, f.detail) }
    };
    findings.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Findings in short.
pub fn reasons(findings: &[Finding]) -> String {
    findings.iter().map(|f| f.reason.clone()).collect::<Vec<_>>().join(", ")
}
