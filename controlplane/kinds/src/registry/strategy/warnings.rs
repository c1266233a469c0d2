//! Warnings for the `Warning` header.

use super::deprecations::{address, range};
use coracle_proto::names::dns1123_label;
use coracle_proto::quantity::Quantity;
use coracle_validation::tree::Tree;
use serde_json::Value;
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

const VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// A new Pod; changes of pods come from controllers, who read no warnings.
pub fn pod(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let wrong = dns1123_label(pod.text("metadata.name"));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(template("", pod));
    warnings
}

/// A workload whose template is at `spec.template`, when the template is new or changed.
pub fn workload(object: &Value, old: Option<&Value>) -> Vec<String> {
    let new = object.at("spec.template");
    if new.is_null() || old.is_some_and(|old| old.at("spec") == object.at("spec")) {
        return Vec::new();
    }
    template("spec.template.", new)
}

/// A PodTemplate.
pub fn pod_template(object: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some_and(|old| old.at("template") == object.at("template")) {
        return Vec::new();
    }
    template("template.", object.at("template"))
}

/// A Job, whose name becomes part of pod names.
pub fn job(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns1123_label(object.text("metadata.name"));
    if old.is_none() && !wrong.is_empty() {
        warnings.push(names_in_hostnames(&wrong));
    }
    warnings.extend(workload(object, old));
    warnings
}

fn names_in_hostnames(wrong: &[String]) -> String {
    format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        wrong.join(" ")
    )
}

/// A CronJob.
pub fn cron_job(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = dns1123_label(object.text("metadata.name"));
    if old.is_none() && !wrong.is_empty() {
        warnings.push(names_in_hostnames(&wrong));
    }
    if old.is_none_or(|old| old.at("spec") != object.at("spec")) {
        warnings
            .extend(template("spec.jobTemplate.spec.template.", object.at("spec.jobTemplate.spec.template")));
        if object.text("spec.schedule").contains("TZ") {
            warnings.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
        }
    }
    warnings
}

/// A Service.
pub fn service(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = object.at("spec");
    let old_hints = "service.kubernetes.io/topology-aware-hints";
    if object.at("metadata.annotations").get(old_hints).is_some() {
        warnings.push(format!(
            "annotation {old_hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let texts = |field: &'static str| {
        let items = spec.items(field).iter().enumerate();
        items.map(move |(i, item)| (format!("spec.{field}[{i}]"), item.as_str().unwrap_or_default()))
    };
    if !matches!(spec.text("clusterIP"), "" | "None") {
        warnings.extend(texts("clusterIPs").filter_map(|(path, text)| address(&path, text)));
    }
    let mut ignored = |unused: bool, text: &str| {
        if unused {
            warnings.push(text.into());
        }
    };
    let has_external = !spec.items("externalIPs").is_empty();
    if spec.text("type") == "ClusterIP" && spec.text("clusterIP") == "None" {
        ignored(
            !spec.text("loadBalancerIP").is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
        );
        ignored(has_external, "spec.externalIPs is ignored for headless services");
        ignored(
            spec.text("sessionAffinity") != "None",
            "spec.SessionAffinity is ignored for headless services",
        );
    }
    warnings.extend(texts("externalIPs").filter_map(|(path, text)| address(&path, text)));
    warnings.extend(address("spec.loadBalancerIP", spec.text("loadBalancerIP")));
    warnings.extend(texts("loadBalancerSourceRanges").filter_map(|(path, text)| range(&path, text)));
    let mut ignored = |unused: bool, text: &str| {
        if unused {
            warnings.push(text.into());
        }
    };
    let named = spec.text("type") == "ExternalName";
    ignored(named && has_external, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    ignored(
        !named && !spec.text("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    ignored(
        spec.text("trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    warnings
}

/// Endpoints as such.
pub fn endpoints(_object: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        Vec::new()
    } else {
        vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into()]
    }
}

/// An EndpointSlice.
pub fn endpoint_slice(object: &Value, _old: Option<&Value>) -> Vec<String> {
    if object.text("addressType") == "FQDN" {
        return vec!["spec.addressType: FQDN endpoints are deprecated".into()];
    }
    Vec::new()
}

/// Component statuses are on their way out.
pub fn component_status(_object: &Value, _old: Option<&Value>) -> Vec<String> {
    vec!["v1 ComponentStatus is deprecated in v1.19+".into()]
}

fn template(path: &str, template: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = template.at("spec");
    let annotations = template.at("metadata.annotations");
    for (key, message) in ANNOTATIONS {
        if annotations.get(key).is_some() {
            warnings.push(format!("{path}metadata.annotations[{key}]: {message}"));
        }
    }
    for (index, volume) in spec.items("volumes").iter().enumerate() {
        for (source, message) in VOLUMES {
            if volume.has(source) {
                let source = if source == "storageos" { "storageOS" } else { source };
                warnings.push(format!("{path}spec.volumes[{index}].{source}: {message}"));
            }
        }
    }
    selectors(path, spec, &mut warnings);
    duplicates(path, spec, &mut warnings);
    if annotations.get(SECCOMP_POD).is_some() && !spec.has("securityContext.seccompProfile") {
        warnings.push(format!(
            "{path}metadata.annotations[{SECCOMP_POD}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    for (at, container) in containers(path, spec) {
        of_container(path, &at, container, annotations, &mut warnings);
    }
    ports(path, spec, &mut warnings);
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{path}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    warnings
}

fn selectors(path: &str, spec: &Value, warnings: &mut Vec<String>) {
    let mut null =
        |at: String| warnings.push(format!("{at}: a null labelSelector results in matching no pod"));
    for (index, rule) in spec.items("topologySpreadConstraints").iter().enumerate() {
        if !rule.has("labelSelector") {
            null(format!("{path}spec.topologySpreadConstraints[{index}].labelSelector"));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.at("affinity").at(kind);
        let base = format!("{path}spec.affinity.{kind}");
        for (index, term) in
            affinity.items("requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            if !term.has("labelSelector") {
                null(format!("{base}.requiredDuringSchedulingIgnoredDuringExecution[{index}].labelSelector"));
            }
        }
        for (index, term) in
            affinity.items("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            if !term.has("podAffinityTerm.labelSelector") {
                null(format!(
                    "{base}.preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm.labelSelector"
                ));
            }
        }
    }
}

fn duplicates(path: &str, spec: &Value, warnings: &mut Vec<String>) {
    for (list, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = HashSet::new();
        for (index, item) in spec.items(list).iter().enumerate() {
            let text = item.text(key);
            if !seen.insert(text) {
                warnings.push(format!("{path}spec.{list}[{index}].{key}: duplicate {key} {text:?}"));
            }
            if list == "imagePullSecrets" && text.is_empty() {
                warnings.push(format!("{path}spec.{list}[{index}].{key}: invalid empty name \"\""));
            }
        }
    }
}

/// Every container with its path.
fn containers<'a>(path: &str, spec: &'a Value) -> Vec<(String, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| {
            let items = spec.items(list).iter().enumerate();
            items.map(move |(index, container)| (format!("{path}spec.{list}[{index}]"), container))
        })
        .collect()
}

fn of_container(path: &str, at: &str, container: &Value, annotations: &Value, warnings: &mut Vec<String>) {
    let name = container.text("name");
    let annotated = |prefix: &str| annotations.get(format!("{prefix}{name}")).is_some();
    if annotated(SECCOMP_CONTAINER) && !container.has("securityContext.seccompProfile") {
        warnings.push(format!(
            "{path}metadata.annotations[{SECCOMP_CONTAINER}{name}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    if annotated(APPARMOR) && !container.has("securityContext.appArmorProfile") {
        warnings.push(format!(
            "{path}metadata.annotations[{APPARMOR}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ));
    }
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            let text =
                container.at("resources").at(list).get(resource).and_then(Value::as_str).unwrap_or_default();
            if text.parse::<Quantity>().is_ok_and(|quantity| quantity.milli_value() % 1000 != 0) {
                warnings.push(format!(
                    "{at}.resources.{list}[{resource}]: fractional byte value {text:?} is invalid, must be an integer"
                ));
            }
        }
    }
    let mut seen = HashSet::new();
    for (index, variable) in container.items("env").iter().enumerate() {
        let name = variable.text("name");
        let reference = format!("$({name})");
        let value = variable.text("value");
        let hides = variable.has("valueFrom") || value == reference || !value.contains(&reference);
        if !seen.insert(name) && hides {
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// How many pairs of ports are compared: whoever has more has been warned enough.
const PAIRS: usize = 100_000;

/// A port by number and protocol, and where it was seen: path, host address, host port.
type SeenPorts = HashMap<(i64, String), Vec<(String, String, i64)>>;

fn ports(path: &str, spec: &Value, warnings: &mut Vec<String>) {
    let mut numbers = SeenPorts::new();
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut pairs = 0;
    for (at, container) in containers(path, spec) {
        for (index, port) in container.items("ports").iter().enumerate() {
            let here = format!("{at}.ports[{index}]");
            let (host_ip, host_port) = (port.text("hostIP"), port.int("hostPort").unwrap_or_default());
            let key = (port.int("containerPort").unwrap_or_default(), port.text("protocol").to_owned());
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
            let name = port.text("name");
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                Some(other) => warnings.push(format!(
                    "{here}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => {
                    names.insert(name, here);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_pod_is_warned_of() {
        let pod_object = json!({"metadata": {"name": "a.b", "annotations": {"security.alpha.kubernetes.io/sysctls": ""}}, "spec": {
            "volumes": [{"name": "v", "gitRepo": {}}],
            "containers": [{"name": "a", "resources": {"limits": {"memory": "500m"}},
                "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}],
                "ports": [{"containerPort": 80, "protocol": "TCP", "name": "w"}, {"containerPort": 80, "protocol": "TCP", "name": "w"}]}]}});
        let texts = pod(&pod_object, None);
        assert!(texts[0].starts_with("metadata.name: this is used in the Pod's hostname"));
        assert_eq!(
            texts[1..],
            [
                "metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the \"sysctls\" field instead",
                "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "spec.containers[0].resources.limits[memory]: fractional byte value \"500m\" is invalid, must be an integer",
                "spec.containers[0].env[1]: hides previous definition of \"X\", which may be dropped when using apply",
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[0].ports[1]: duplicate port name \"w\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ]
        );
        assert!(pod(&pod_object, Some(&pod_object)).is_empty());
    }
}
