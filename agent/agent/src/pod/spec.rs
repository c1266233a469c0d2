//! Helpers on the pod spec: roles of containers, restart rules, QoS, resource sums.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::amount::{millis, units};

/// Annotation of static pods: where the pod came from.
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Annotation of static pods: hash of the manifest.
pub const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// Annotation of mirror pods: hash of the static pod they show.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs to completion before the next one starts.
    Init,
    /// A restartable init container: started in order, kept running, stopped last.
    Sidecar,
    /// An ordinary container.
    Regular,
    /// Added by `kubectl debug`; never restarted, never counts for the phase.
    Ephemeral,
}

/// Quality of service class, from requests and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qos {
    /// Every container has equal cpu and memory requests and limits.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is requested or limited.
    BestEffort,
}

impl Qos {
    /// The name the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        }
    }
}

/// The spec, or an empty one for an object without (never stored by a server).
pub fn spec(pod: &Pod) -> Cow<'_, PodSpec> {
    match &pod.spec {
        Some(spec) => Cow::Borrowed(spec),
        None => Cow::Owned(PodSpec::default()),
    }
}

/// `metadata.uid`, or the empty string.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// `metadata.name`, or the empty string.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// `metadata.namespace`, or the empty string.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// An annotation's value.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the pod came from a manifest on this node. Each source of pods sets the annotation itself.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE_ANNOTATION).is_some_and(|source| source != "api")
}

/// Whether the API object only mirrors a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR_ANNOTATION).is_some()
}

/// Pods the node may not refuse: static, mirror, or of system priority.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || spec(pod).priority.is_some_and(|priority| priority >= 2_000_000_000)
}

/// Critical pods that the node needs itself: the last to be killed when memory runs out.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && spec(pod).priority_class_name.as_deref() == Some("system-node-critical")
}

/// Init container that is kept running.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// An ephemeral container seen as a container.
pub fn ephemeral_as_container(from: &k8s_openapi::api::core::v1::EphemeralContainer) -> Container {
    let from = from.clone();
    Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        lifecycle: from.lifecycle,
        liveness_probe: from.liveness_probe,
        name: from.name,
        ports: from.ports,
        readiness_probe: from.readiness_probe,
        resize_policy: from.resize_policy,
        resources: from.resources,
        restart_policy: None,
        restart_policy_rules: None,
        security_context: from.security_context,
        startup_probe: from.startup_probe,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
    }
}

/// Every container of the pod with its role, in start order.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        (if is_sidecar(container) { Role::Sidecar } else { Role::Init }, Cow::Borrowed(container))
    });
    let regular = spec.containers.iter().map(|container| (Role::Regular, Cow::Borrowed(container)));
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .map(|container| (Role::Ephemeral, Cow::Owned(ephemeral_as_container(container))));
    init.chain(regular).chain(ephemeral)
}

/// The container of that name with its role.
pub fn container<'a>(spec: &'a PodSpec, name: &str) -> Option<(Role, Cow<'a, Container>)> {
    containers(spec).find(|(_, container)| container.name == name)
}

/// Whether a container that ended with this code runs again, by its own rules first, then its policy, then the pod's.
pub fn restarts_after(spec: &PodSpec, role: Role, container: &Container, exit_code: i32) -> bool {
    match role {
        Role::Ephemeral => return false,
        Role::Sidecar => return true,
        Role::Init | Role::Regular => {}
    }
    if let Some(action) = restart_action(container, exit_code) {
        return matches!(action, "Restart" | "RestartAllContainers");
    }
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        // An init container that succeeded is done whatever the policy.
        _ => role == Role::Regular || exit_code != 0,
    }
}

/// The action of the first restart rule for an exit code.
pub fn restart_action(container: &Container, exit_code: i32) -> Option<&str> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
            listed != (codes.operator == "NotIn")
        })
    })?;
    Some(&rule.action)
}

/// Whether the policy forbids another start after any failure (probe failures have no exit code yet).
pub fn restarts_on_failure(spec: &PodSpec, container: &Container) -> bool {
    container.restart_policy.as_deref().or(spec.restart_policy.as_deref()) != Some("Never")
}

/// Hash of what makes a running container another one when it changes: its name and image.
pub fn container_hash(container: &Container) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let image = container.image.as_deref().unwrap_or_default();
    for byte in container.name.bytes().chain([0]).chain(image.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:x}")
}

/// The grace period the pod asks for.
pub fn grace(pod: &Pod) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .or(spec(pod).termination_grace_period_seconds)
        .unwrap_or(30)
        .max(0)
}

/// The pod's quality of service class.
pub fn qos(spec: &PodSpec) -> Qos {
    let counted = ["cpu", "memory"];
    let set = |list: &Option<BTreeMap<String, Quantity>>, key: &str| {
        list.as_ref().and_then(|list| list.get(key)).map(millis).filter(|amount| *amount != 0)
    };
    let pod_level = spec.resources.as_ref().filter(|resources| {
        counted
            .iter()
            .any(|key| set(&resources.requests, key).is_some() || set(&resources.limits, key).is_some())
    });
    let all: Vec<ResourceRequirements> = match pod_level {
        Some(resources) => vec![resources.clone()],
        None => containers(spec)
            .filter(|(role, _)| *role != Role::Ephemeral)
            .map(|(_, container)| container.resources.clone().unwrap_or_default())
            .collect(),
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in &all {
        for key in counted {
            let (request, limit) = (set(&resources.requests, key), set(&resources.limits, key));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed && !all.is_empty()) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

/// Requests or limits of the whole pod, as the scheduler counts them: containers and sidecars add up, init
/// containers run alone beside the sidecars before them. Cpu in thousandths, everything else in units.
pub fn totals(spec: &PodSpec, limits: bool) -> BTreeMap<String, i64> {
    let mut sum = totals_of_containers(spec, limits);
    for (key, value) in listed(spec.resources.as_ref(), limits) {
        sum.insert(key, value);
    }
    for (key, quantity) in spec.overhead.iter().flatten() {
        if !limits || sum.contains_key(key) {
            let total = sum.entry(key.clone()).or_default();
            *total = total.saturating_add(amount(key, quantity));
        }
    }
    sum
}

/// The same of the containers alone: without resources of the pod as a whole, and without overhead.
pub fn totals_of_containers(spec: &PodSpec, limits: bool) -> BTreeMap<String, i64> {
    let mut sum: BTreeMap<String, i64> = BTreeMap::new();
    let mut sidecars: BTreeMap<String, i64> = BTreeMap::new();
    let mut peak: BTreeMap<String, i64> = BTreeMap::new();
    for (role, container) in containers(spec) {
        let own = listed(container.resources.as_ref(), limits);
        match role {
            Role::Ephemeral => {}
            Role::Regular => add(&mut sum, &own),
            Role::Sidecar => {
                add(&mut sidecars, &own);
                raise(&mut peak, &sidecars);
            }
            Role::Init => {
                let mut together = sidecars.clone();
                add(&mut together, &own);
                raise(&mut peak, &together);
            }
        }
    }
    add(&mut sum, &sidecars);
    raise(&mut sum, &peak);
    sum
}

fn listed(resources: Option<&ResourceRequirements>, limits: bool) -> BTreeMap<String, i64> {
    amounts(resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() }))
}

/// A list of resources: cpu in thousandths, everything else in units.
pub fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, i64> {
    list.into_iter().flatten().map(|(key, quantity)| (key.clone(), amount(key, quantity))).collect()
}

/// One amount in the unit its resource is counted in.
pub fn amount(resource: &str, quantity: &Quantity) -> i64 {
    if resource == "cpu" { millis(quantity) } else { units(quantity) }
}

fn add(to: &mut BTreeMap<String, i64>, from: &BTreeMap<String, i64>) {
    for (key, value) in from {
        // What a pod asks for may be larger than any number: it then stays the largest.
        let total = to.entry(key.clone()).or_default();
        *total = total.saturating_add(*value);
    }
}

fn raise(to: &mut BTreeMap<String, i64>, from: &BTreeMap<String, i64>) {
    for (key, value) in from {
        let entry = to.entry(key.clone()).or_default();
        *entry = (*entry).max(*value);
    }
}

/// Requests of the claim for the pod's extended resources: container, resource, request.
pub fn extended_mappings(pod: &Pod) -> impl Iterator<Item = (&str, &str, &str)> {
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    status
        .into_iter()
        .flat_map(|status| &status.request_mappings)
        .map(|one| (one.container_name.as_str(), one.resource_name.as_str(), one.request_name.as_str()))
}

/// Whether devices of a claim are behind an extended resource of the pod, instead of those of a device plugin.
pub fn is_claimed(pod: &Pod, resource: &str) -> bool {
    extended_mappings(pod).any(|(_, mapped, _)| mapped == resource)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn quality_of_service() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        for (containers, want) in [
            (json!([{"name": "a"}]), Qos::BestEffort),
            (json!([{"name": "a", "resources": full}]), Qos::Guaranteed),
            (json!([{"name": "a", "resources": full}, {"name": "b"}]), Qos::Burstable),
            (
                json!([{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]),
                Qos::Burstable,
            ),
            (json!([{"name": "a", "resources": {"requests": {"cpu": "0"}}}]), Qos::BestEffort),
            (json!([{"name": "a", "resources": {"requests": {"example.com/gpu": "1"}}}]), Qos::BestEffort),
        ] {
            assert_eq!(qos(&pod(json!({"containers": containers}))), want, "{containers}");
        }
    }

    #[test]
    fn init_containers_count_by_peak_and_sidecars_by_sum() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let spec = pod(json!({
            "containers": [{"name": "a", "resources": cpu("100m")}, {"name": "b", "resources": cpu("200m")}],
            "initContainers": [
                {"name": "i", "resources": cpu("50m")},
                {"name": "s", "restartPolicy": "Always", "resources": cpu("100m")},
                {"name": "j", "resources": cpu("700m")},
            ],
            "overhead": {"cpu": "10m"},
        }));
        assert_eq!(totals(&spec, false)["cpu"], 810);
    }

    #[test]
    fn restart_rules_come_before_policies() {
        let spec = pod(json!({"restartPolicy": "Never", "containers": [
            {"name": "a", "restartPolicy": "Never",
             "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]},
            {"name": "b", "restartPolicy": "OnFailure"},
            {"name": "c"},
        ]}));
        for (index, code, want) in [(0, 42, true), (0, 1, false), (1, 1, true), (1, 0, false), (2, 1, false)]
        {
            assert_eq!(
                restarts_after(&spec, Role::Regular, &spec.containers[index], code),
                want,
                "{index} {code}"
            );
        }
    }
}
