//! Warnings about pods and their templates.

use super::deprecations::{fractional, old_label};
use coracle_fields::core::v1::{
    Affinity, Container, ContainerPort, NodeSelectorTerm, PodAffinity, PodSpec, PodTemplateSpec, Volume,
    VolumeProjection,
};
use coracle_fields::{Json, Map, Text, View};
use std::collections::{HashMap, HashSet};

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Sources of a volume that are on their way out, by the name that warnings use.
fn old_sources(volume: View<'_, Volume>) -> [(&'static str, View<'_, Json>, &'static str); 9] {
    [
        (
            "photonPersistentDisk",
            volume.photon_persistent_disk().erased(),
            "deprecated in v1.11, non-functional in v1.16+",
        ),
        ("gitRepo", volume.git_repo().erased(), "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", volume.scale_io().erased(), "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", volume.flocker().erased(), "deprecated in v1.22, non-functional in v1.25+"),
        ("storageOS", volume.storageos().erased(), "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", volume.quobyte().erased(), "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", volume.glusterfs().erased(), "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", volume.cephfs().erased(), "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", volume.rbd().erased(), "deprecated in v1.28, non-functional in v1.31+"),
    ]
}

/// A template at a path, which is empty or ends in a dot.
pub(super) fn template(path: &str, template: View<'_, PodTemplateSpec>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = template.spec();
    let annotations = template.metadata().annotations();
    node_labels(path, spec, &mut warnings);
    for (key, message) in ANNOTATIONS {
        if annotations.key(key).is_set() {
            warnings.push(format!("{path}metadata.annotations[{key}]: {message}"));
        }
    }
    for (index, volume) in spec.volumes().items().enumerate() {
        for (name, source, message) in old_sources(volume) {
            if source.is_set() {
                warnings.push(format!("{path}spec.volumes[{index}].{name}: {message}"));
            }
        }
        let requests = volume.ephemeral().volume_claim_template().spec().resources().requests();
        let at = format!("{path}spec.volumes[{index}].ephemeral.volumeClaimTemplate.spec.resources.requests");
        warnings.extend(fractional(&at, "storage", requests.key("storage").text()));
    }
    for volume in spec.volumes().items() {
        overlapping_paths(volume, &mut warnings);
    }
    duplicates(path, spec, &mut warnings);
    for resource in ["memory", "ephemeral-storage"] {
        let amount = spec.overhead().key(resource).text();
        warnings.extend(fractional(&format!("{path}spec.overhead"), resource, amount));
    }
    if annotations.key(SECCOMP_POD).is_set() && !spec.security_context().seccomp_profile().is_set() {
        warnings.push(format!(
            "{path}metadata.annotations[{SECCOMP_POD}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    for (at, container) in containers(path, spec) {
        of_container(path, &at, container, annotations, &mut warnings);
    }
    ports(path, spec, &mut warnings);
    // That of a pod has been changed by now.
    if !path.is_empty() && spec.termination_grace_period_seconds().int().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{path}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    selectors(path, spec, &mut warnings);
    warnings
}

/// Labels of nodes that have other names by now.
fn node_labels(path: &str, spec: View<'_, PodSpec>, warnings: &mut Vec<String>) {
    let mut keys: Vec<&str> = spec.node_selector().entries().map(|(key, _)| key).collect();
    keys.sort_unstable();
    for key in keys {
        if let Some(message) = old_label(key) {
            warnings.push(format!("{path}spec.nodeSelector[{key}]: {message}"));
        }
    }
    let affinity = spec.affinity().node_affinity();
    let base = format!("{path}spec.affinity.nodeAffinity");
    let required = affinity.required_during_scheduling_ignored_during_execution().node_selector_terms();
    for (index, term) in required.items().enumerate() {
        let at = format!("{base}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]");
        term_labels(&at, term, warnings);
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution();
    for (index, term) in preferred.items().enumerate() {
        let at = format!("{base}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference");
        term_labels(&at, term.preference(), warnings);
    }
    for (index, rule) in spec.topology_spread_constraints().items().enumerate() {
        let (at, key) =
            (format!("{path}spec.topologySpreadConstraints[{index}]"), rule.topology_key().text());
        if let Some(message) = old_label(key) {
            warnings.push(format!("{at}.topologyKey: {key} is {message}"));
        }
        if !rule.label_selector().is_set() {
            warnings.push(null_selector(&format!("{at}.labelSelector")));
        }
    }
}

fn term_labels(at: &str, term: View<'_, NodeSelectorTerm>, warnings: &mut Vec<String>) {
    for (index, expression) in term.match_expressions().items().enumerate() {
        let key = expression.key().text();
        if let Some(message) = old_label(key) {
            warnings.push(format!("{at}.matchExpressions[{index}].key: {key} is {message}"));
        }
    }
}

fn null_selector(at: &str) -> String {
    format!("{at}: a null labelSelector results in matching no pod")
}

/// Files of a volume of which one would replace another, or be a directory above it.
fn overlapping_paths(volume: View<'_, Volume>, warnings: &mut Vec<String>) {
    let name = volume.name().text();
    let (map, secret) = (volume.config_map(), volume.secret());
    for (of, items) in [
        (format!("ConfigMap {:?}", map.name().text()), map.items()),
        (format!("Secret {:?}", secret.secret_name().text()), secret.items()),
    ] {
        let mut files = Files::new(name, of);
        items.items().for_each(|item| files.add(item.path().text(), "", warnings));
    }
    let mut files = Files::new(name, "DownwardAPI".to_owned());
    volume.downward_api().items().items().for_each(|item| files.add(item.path().text(), "", warnings));
    let mut files = Files::new(name, "Projected".to_owned());
    volume.projected().sources().items().for_each(|source| projected_paths(source, &mut files, warnings));
}

/// Files of one source of a projected volume. What is of a feature that is off has been dropped by now, and nothing may be left.
fn projected_paths(source: View<'_, VolumeProjection>, files: &mut Files<'_>, warnings: &mut Vec<String>) {
    let (map, secret, downward) = (source.config_map(), source.secret(), source.downward_api());
    let (token, bundle) = (source.service_account_token(), source.cluster_trust_bundle());
    let certificate = source.pod_certificate();
    if map.items().is_set() {
        let of = format!("ConfigMap {:?}", map.name().text());
        map.items().items().for_each(|item| files.add(item.path().text(), &of, warnings));
    } else if secret.items().is_set() {
        let of = format!("Secret {:?}", secret.name().text());
        secret.items().items().for_each(|item| files.add(item.path().text(), &of, warnings));
    } else if downward.items().is_set() {
        downward.items().items().for_each(|item| files.add(item.path().text(), "DownwardAPI", warnings));
    } else if token.is_set() {
        files.add(token.path().text(), "ServiceAccountToken", warnings);
    } else if bundle.is_set() {
        let name = bundle.name().or(bundle.signer_name().text());
        files.add(bundle.path().text(), &format!("ClusterTrustBundle {name:?}"), warnings);
    } else if certificate.is_set() {
        for (path, of) in [
            (certificate.certificate_chain_path(), "PodCertificate chain"),
            (certificate.key_path(), "PodCertificate key"),
            (certificate.credential_bundle_path(), "PodCertificate credential bundle"),
        ] {
            files.add(path.text(), of, warnings);
        }
    } else if !map.is_set() && !secret.is_set() && !downward.is_set() && warnings.len() < PAIRS {
        warnings.push(format!("volume {:?} (Projected) has no sources provided", files.volume));
    }
}

/// The files of a volume that were seen.
struct Files<'a> {
    volume: &'a str,
    /// What the volume shows.
    of: String,
    /// Paths, and how warnings show them.
    seen: Vec<(String, String)>,
}

impl<'a> Files<'a> {
    fn new(volume: &'a str, of: String) -> Self {
        Self { volume, of, seen: Vec::new() }
    }

    /// Compares a path with those before it; `source` is what it comes from, if the volume has several.
    fn add(&mut self, path: &str, source: &str, warnings: &mut Vec<String>) {
        if self.seen.len() > MAX_PATHS || warnings.len() >= PAIRS {
            return;
        }
        let path = path.trim_end_matches('/');
        let shown = if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") };
        let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        let overlaps = |other: &str| {
            !path.is_empty()
                && !other.is_empty()
                && (other == path || below(path, other) || below(other, path))
        };
        let others = self.seen.iter().filter(|(other, _)| overlaps(other)).take(PAIRS / MAX_PATHS);
        warnings.extend(others.map(|(_, other)| {
            format!("volume {:?} ({}): overlapping paths: {shown} with {other}", self.volume, self.of)
        }));
        self.seen.push((path.to_owned(), shown));
    }
}

/// How many files of a volume are compared.
const MAX_PATHS: usize = 1_000;

fn selectors(path: &str, spec: View<'_, PodSpec>, warnings: &mut Vec<String>) {
    let mut null = |at: String| warnings.push(null_selector(&at));
    for (kind, affinity) in pod_affinities(spec.affinity()) {
        let base = format!("{path}spec.affinity.{kind}");
        let required = affinity.required_during_scheduling_ignored_during_execution().items();
        for (index, term) in required.enumerate() {
            if !term.label_selector().is_set() {
                null(format!("{base}.requiredDuringSchedulingIgnoredDuringExecution[{index}].labelSelector"));
            }
        }
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution().items();
        for (index, term) in preferred.enumerate() {
            if !term.pod_affinity_term().label_selector().is_set() {
                null(format!(
                    "{base}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm.labelSelector"
                ));
            }
        }
    }
}

/// Affinity and anti-affinity to pods, which have the same fields, with their names.
fn pod_affinities(affinity: View<'_, Affinity>) -> [(&'static str, View<'_, PodAffinity>); 2] {
    [
        ("podAffinity", affinity.pod_affinity()),
        ("podAntiAffinity", affinity.pod_anti_affinity().erased().as_type()),
    ]
}

fn duplicates(path: &str, spec: View<'_, PodSpec>, warnings: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, alias) in spec.host_aliases().items().enumerate() {
        let ip = alias.ip().text();
        if !seen.insert(ip) {
            warnings.push(format!("{path}spec.hostAliases[{index}].ip: duplicate ip {ip:?}"));
        }
    }
    let mut seen = HashSet::new();
    for (index, secret) in spec.image_pull_secrets().items().enumerate() {
        let name = secret.name().text();
        if !seen.insert(name) {
            warnings.push(format!("{path}spec.imagePullSecrets[{index}].name: duplicate name {name:?}"));
        }
    }
    for (index, secret) in spec.image_pull_secrets().items().enumerate() {
        if secret.name().text().is_empty() {
            warnings.push(format!("{path}spec.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
}

/// Every container with its path. Ephemeral containers have the fields of containers.
fn containers<'a>(path: &str, spec: View<'a, PodSpec>) -> Vec<(String, View<'a, Container>)> {
    let ephemeral =
        spec.ephemeral_containers().items().map(|container| container.erased().as_type::<Container>());
    let init = spec.init_containers().items().enumerate().map(|(i, c)| ("initContainers", i, c));
    let main = spec.containers().items().enumerate().map(|(i, c)| ("containers", i, c));
    let ephemeral = ephemeral.enumerate().map(|(i, c)| ("ephemeralContainers", i, c));
    let all = init.chain(main).chain(ephemeral);
    all.map(|(list, index, container)| (format!("{path}spec.{list}[{index}]"), container)).collect()
}

fn of_container(
    path: &str,
    at: &str,
    container: View<'_, Container>,
    annotations: View<'_, Map<Text>>,
    warnings: &mut Vec<String>,
) {
    let name = container.name().text();
    let security = container.security_context();
    let annotated = |prefix: &str| annotations.key(&format!("{prefix}{name}")).is_set();
    if annotated(SECCOMP_CONTAINER) && !security.seccomp_profile().is_set() {
        warnings.push(format!(
            "{path}metadata.annotations[{SECCOMP_CONTAINER}{name}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    if annotated(APPARMOR) && !security.app_armor_profile().is_set() {
        warnings.push(format!(
            "{path}metadata.annotations[{APPARMOR}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ));
    }
    let resources = container.resources();
    for resource in ["memory", "ephemeral-storage"] {
        for (list, amounts) in [("limits", resources.limits()), ("requests", resources.requests())] {
            let amount = amounts.key(resource).text();
            warnings.extend(fractional(&format!("{at}.resources.{list}"), resource, amount));
        }
    }
    let mut seen = HashSet::new();
    for (index, variable) in container.env().items().enumerate() {
        let (name, value) = (variable.name().text(), variable.value().text());
        let reference = format!("$({name})");
        let hides = variable.value_from().is_set() || value == reference || !value.contains(&reference);
        if !seen.insert(name) && hides {
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// How many pairs of ports or files are compared: whoever has more has been warned enough.
const PAIRS: usize = 100_000;

/// A port by number and protocol, and where it was seen: path, host address, host port.
type SeenPorts = HashMap<(i64, String), Vec<(String, String, i64)>>;

fn ports(path: &str, spec: View<'_, PodSpec>, warnings: &mut Vec<String>) {
    let mut numbers = SeenPorts::new();
    let mut names: HashMap<&str, String> = HashMap::new();
    let (mut pairs, mut named_twice) = (0, Vec::new());
    for (at, container) in containers(path, spec) {
        for (index, port) in container.ports().items().enumerate() {
            let here = format!("{at}.ports[{index}]");
            let (host_ip, host_port) = (port.host_ip().text(), port.host_port().or(0));
            if !host_ip.is_empty() && host_port == 0 {
                warnings.push(format!("{here}: hostIP set without hostPort: {}", as_struct(port)));
            }
            let key = (port.container_port().or(0), port.protocol().text().to_owned());
            let others = numbers.entry(key).or_default();
            let left = PAIRS.saturating_sub(pairs);
            pairs += others.len();
            for (other, other_ip, other_port) in others.iter().take(left) {
                let what = if host_ip == other_ip && host_port == *other_port {
                    "duplicate"
                } else if host_port == 0 || *other_port == 0 {
                    "overlapping"
                } else if host_port == *other_port && (host_ip.is_empty() != other_ip.is_empty()) {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{here}: {what} port definition with {other}"));
            }
            others.push((here.clone(), host_ip.to_owned(), host_port));
            let name = port.name().text();
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                Some(other) => named_twice.push(format!(
                    "{here}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => {
                    names.insert(name, here);
                }
            }
        }
    }
    warnings.append(&mut named_twice);
}

/// A port as Go prints the struct.
fn as_struct(port: View<'_, ContainerPort>) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        port.name().text(),
        port.host_port().or(0),
        port.container_port().or(0),
        port.protocol().text(),
        port.host_ip().text()
    )
}
