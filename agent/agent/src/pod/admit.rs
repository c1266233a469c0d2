//! Admission of pods that are bound to this node. Pure; reasons and messages are the kubelet's.

use coracle_proto::sysctls::SAFE;
use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::node_facts::Pressure;
use super::preempt::{self, Shortage};
use super::spec::Qos;
use super::{affinity, spec};

/// Inputs of admission.
pub struct AdmitFacts<'a> {
    /// What pods may use, with `pods`: cpu in thousandths, the rest in units.
    pub allocatable: &'a BTreeMap<String, i64>,
    /// The node's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The node's name.
    pub node: &'a str,
    /// The node's taints.
    pub taints: &'a [Taint],
    /// Resource pressure of the node.
    pub pressure: Pressure,
    /// Sysctls allowed beyond the safe ones.
    pub allowed_sysctls: &'a [String],
}

/// A rejected pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Reason on the pod's status.
    pub reason: String,
    /// Message on the pod's status.
    pub message: String,
}

fn refuse<T>(reason: impl Into<String>, message: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection { reason: reason.into(), message: message.into() })
}

/// Safe sysctl that is not in the list of PodSecurity.
const SAFE_ON_NODES: &str = "net.ipv4.tcp_notsent_lowat";

/// Admits or rejects a pod, given the pods that are admitted already. A critical pod is not rejected for resources:
/// these of the others have to end before it starts.
pub fn admit(pod: &Pod, others: &[Arc<Pod>], facts: &AdmitFacts<'_>) -> Result<Vec<Arc<Pod>>, Rejection> {
    pressure(pod, facts)?;
    let spec = spec::spec(pod);
    let os = spec.node_selector.as_ref().and_then(|selector| selector.get("kubernetes.io/os"));
    if os.is_some_and(|os| facts.labels.get("kubernetes.io/os") != Some(os)) {
        let text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return refuse("PodOSSelectorNodeLabelDoesNotMatch", text);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    sysctls(pod, facts)?;
    let missing = resources(pod, others, facts);
    if let Some(first) = missing.first().filter(|_| !spec::is_critical(pod)) {
        return Err(first.rejection());
    }
    placement(pod, others, facts)?;
    let missing: Vec<Shortage> = missing.iter().map(Insufficient::shortage).collect();
    preempt::victims(pod, others, &missing).map_err(|error| Rejection {
        reason: "UnexpectedAdmissionError".into(),
        message: format!("Unexpected error while attempting to recover from admission failure: {error}"),
    })
}

/// Whether selector and required affinity of a pod allow a node with these labels and this name.
pub fn selects(pod: &Pod, labels: &BTreeMap<String, String>, node: &str) -> bool {
    let spec = spec::spec(pod);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| affinity::matches(required, labels, node))
}

/// Rejects a pod that does not belong on the node, whatever is free there.
fn placement(pod: &Pod, others: &[Arc<Pod>], facts: &AdmitFacts<'_>) -> Result<(), Rejection> {
    if !selects(pod, facts.labels, facts.node) {
        return refuse(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        );
    }
    if ports_conflict(pod, others) {
        return refuse(
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        );
    }
    let spec = spec::spec(pod);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = facts
        .taints
        .iter()
        .any(|taint| taint.effect == "NoExecute" && !tolerations.iter().any(|t| tolerates(t, taint)));
    if untolerated && !spec::is_static(pod) {
        return refuse(
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        );
    }
    Ok(())
}

/// Under pressure, rejects pods that would be evicted again; under memory pressure only BestEffort pods.
fn pressure(pod: &Pod, facts: &AdmitFacts<'_>) -> Result<(), Rejection> {
    let conditions = facts.pressure.conditions();
    if conditions.is_empty() || spec::is_critical(pod) {
        return Ok(());
    }
    if conditions == ["MemoryPressure"] {
        let spec = spec::spec(pod);
        let (key, effect) = ("node.kubernetes.io/memory-pressure".into(), "NoSchedule".into());
        let taint = Taint { key, effect, ..Taint::default() };
        if spec::qos(&spec) != Qos::BestEffort
            || spec.tolerations.iter().flatten().any(|t| tolerates(t, &taint))
        {
            return Ok(());
        }
    }
    refuse("Evicted", format!("The node had condition: [{}]. ", conditions.join(" ")))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    let effect = given(&toleration.effect);
    let key = given(&toleration.key);
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            _ => given(&toleration.value) == given(&taint.value),
        }
}

fn sysctls(pod: &Pod, facts: &AdmitFacts<'_>) -> Result<(), Rejection> {
    let spec = spec::spec(pod);
    let wanted = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    for sysctl in wanted.into_iter().flatten() {
        let name = sysctl.name.replace('/', ".");
        let allowed = facts.allowed_sysctls.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => *pattern == name,
        });
        if !allowed && !SAFE.contains(&name.as_str()) && name != SAFE_ON_NODES {
            return refuse("SysctlForbidden", format!("forbidden sysctl: {:?} not allowlisted", sysctl.name));
        }
        let shared = |host: Option<bool>, prefixes: &[&str]| {
            host == Some(true) && prefixes.iter().any(|p| name.starts_with(p))
        };
        if shared(spec.host_network, &["net."]) {
            return refuse(
                "SysctlForbidden",
                format!("forbidden sysctl: {:?} not allowed with host net enabled", sysctl.name),
            );
        }
        if shared(spec.host_ipc, &["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."]) {
            return refuse(
                "SysctlForbidden",
                format!("forbidden sysctl: {:?} not allowed with host ipc enabled", sysctl.name),
            );
        }
    }
    Ok(())
}

/// A resource of which the node has too little left.
struct Insufficient {
    resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Insufficient {
    fn rejection(&self) -> Rejection {
        let Insufficient { resource, requested, used, capacity } = self;
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        Rejection { reason: format!("OutOf{resource}"), message }
    }

    fn shortage(&self) -> Shortage {
        let missing = self.requested.saturating_add(self.used).saturating_sub(self.capacity);
        Shortage { resource: self.resource.clone(), missing }
    }
}

fn resources(pod: &Pod, others: &[Arc<Pod>], facts: &AdmitFacts<'_>) -> Vec<Insufficient> {
    let mut missing = Vec::new();
    let used_pods = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let pods = facts.allocatable.get("pods").copied().unwrap_or(i64::MAX);
    if used_pods >= pods {
        let resource = "pods".to_owned();
        missing.push(Insufficient { resource, requested: 1, used: used_pods, capacity: pods });
    }
    for (key, wanted) in spec::totals(&spec::spec(pod), false) {
        if spec::is_claimed(pod, &key) {
            continue;
        }
        // Unknown resources are not counted here, except huge pages.
        let unknown = key.starts_with("hugepages-").then_some(0);
        let Some(capacity) = facts.allocatable.get(&key).copied().or(unknown) else { continue };
        let used: i64 = others
            .iter()
            .filter(|other| !spec::is_claimed(other, &key))
            .map(|other| spec::totals(&spec::spec(other), false).get(&key).copied().unwrap_or(0))
            .fold(0, i64::saturating_add);
        if wanted > 0 && wanted.saturating_add(used) > capacity {
            missing.push(Insufficient { resource: key, requested: wanted, used, capacity });
        }
    }
    missing
}

/// Why a resize does not fit on the node.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RoomError {
    /// More than the node's capacity.
    #[error("Node didn't have enough capacity: {resource}, requested: {wanted}, capacity: {capacity}")]
    Capacity {
        /// `cpu` or `memory`.
        resource: &'static str,
        /// What the pod asks for.
        wanted: i64,
        /// What the node has for pods.
        capacity: i64,
    },
    /// Used by other pods.
    #[error(
        "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
    )]
    InUse {
        /// `cpu` or `memory`.
        resource: &'static str,
        /// What the pod asks for.
        wanted: i64,
        /// What the others ask for.
        used: i64,
        /// What the node has for pods.
        capacity: i64,
    },
}

/// Checks that the requests of a resized pod fit beside the other pods.
pub fn room(pod: &Pod, others: &[Arc<Pod>], allocatable: &BTreeMap<String, i64>) -> Result<(), RoomError> {
    let wanted = spec::totals(&spec::spec(pod), false);
    for resource in ["cpu", "memory"] {
        let amounts = (wanted.get(resource).copied(), allocatable.get(resource).copied());
        let (Some(wanted), Some(capacity)) = amounts else { continue };
        if wanted > capacity {
            return Err(RoomError::Capacity { resource, wanted, capacity });
        }
        let of =
            |other: &Arc<Pod>| spec::totals(&spec::spec(other), false).get(resource).copied().unwrap_or(0);
        let used: i64 = others.iter().map(of).fold(0, i64::saturating_add);
        if wanted.saturating_add(used) > capacity {
            return Err(RoomError::InUse { resource, wanted, used, capacity });
        }
    }
    Ok(())
}

/// Host ports as (address, port, protocol).
fn host_ports(pod: &Pod) -> Vec<(String, i32, String)> {
    let spec = spec::spec(pod);
    spec::containers(&spec)
        .flat_map(|(_, container)| container.ports.clone().unwrap_or_default())
        .filter_map(|port| {
            let number = port.host_port.filter(|port| *port > 0)?;
            let ip = port.host_ip.filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into());
            Some((ip, number, port.protocol.unwrap_or_else(|| "TCP".into())))
        })
        .collect()
}

fn ports_conflict(pod: &Pod, others: &[Arc<Pod>]) -> bool {
    let wanted = host_ports(pod);
    let any = |ip: &str| matches!(ip, "0.0.0.0" | "::");
    !wanted.is_empty()
        && others.iter().flat_map(|other| host_ports(other)).any(|(ip, port, protocol)| {
            wanted.iter().any(|(own_ip, own_port, own_protocol)| {
                *own_port == port && *own_protocol == protocol && (*own_ip == ip || any(own_ip) || any(&ip))
            })
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[test]
    fn refusals_by_reason() {
        let allocatable = BTreeMap::from([
            ("cpu".to_owned(), 1000),
            ("memory".to_owned(), 1 << 30),
            ("pods".to_owned(), 2),
        ]);
        let labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        let taints: Vec<Taint> =
            serde_json::from_value(json!([{"key": "k", "value": "v", "effect": "NoExecute"}])).unwrap();
        let tolerates = json!([{"key": "k", "operator": "Exists"}]);
        let facts = AdmitFacts {
            allocatable: &allocatable,
            labels: &labels,
            node: "n",
            taints: &taints,
            pressure: Pressure::default(),
            allowed_sysctls: &["net.core.*".to_owned()],
        };
        let other = Arc::new(pod(
            json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "600m"}}, "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"}]}]}),
        ));
        let c = |extra: Value| {
            let mut container = json!({"name": "a"});
            container.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"tolerations": tolerates, "containers": [container]})
        };
        let with = |extra: Value| {
            let mut spec = c(json!({}));
            spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            spec
        };
        for (spec, want) in [
            (c(json!({})), None),
            (c(json!({"resources": {"requests": {"cpu": "400m"}}})), None),
            (
                c(json!({"resources": {"requests": {"cpu": "500m"}}})),
                Some((
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000",
                )),
            ),
            (
                c(json!({"resources": {"requests": {"memory": "2Gi"}}})),
                Some((
                    "OutOfmemory",
                    "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
                )),
            ),
            (c(json!({"resources": {"requests": {"example.com/x": "9"}}})), None),
            (
                c(json!({"resources": {"requests": {"hugepages-2Mi": "4Mi"}}})),
                Some((
                    "OutOfhugepages-2Mi",
                    "Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 0",
                )),
            ),
            (
                c(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
                Some((
                    "NodePorts",
                    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
                )),
            ),
            (c(json!({"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.2"}]})), None),
            (c(json!({"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]})), None),
            (
                with(json!({"nodeSelector": {"disk": "ssd"}})),
                Some((
                    "NodeAffinity",
                    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
                )),
            ),
            (
                with(json!({"tolerations": []})),
                Some((
                    "TaintToleration",
                    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
                )),
            ),
            (
                with(json!({"os": {"name": "windows"}})),
                Some(("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")),
            ),
            (
                with(json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}})),
                Some(("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
            ),
            (
                with(
                    json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}, {"name": "kernel.shm_rmid_forced", "value": "1"}]}}),
                ),
                None,
            ),
            (
                with(
                    json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}),
                ),
                Some((
                    "SysctlForbidden",
                    "forbidden sysctl: \"net.core.somaxconn\" not allowed with host net enabled",
                )),
            ),
        ] {
            let got = admit(&pod(spec.clone()), std::slice::from_ref(&other), &facts)
                .err()
                .map(|r| (r.reason, r.message));
            assert_eq!(got.as_ref().map(|(a, b)| (a.as_str(), b.as_str())), want, "{spec}");
        }
        let full = [other.clone(), other];
        assert_eq!(admit(&pod(c(json!({}))), &full, &facts).unwrap_err().reason, "OutOfpods");
    }

    #[test]
    fn critical_pods_preempt_for_resources_and_are_rejected_for_other_reasons() {
        let allocatable = BTreeMap::from([("cpu".to_owned(), 1000), ("pods".to_owned(), 9)]);
        let labels = BTreeMap::new();
        let facts = AdmitFacts {
            allocatable: &allocatable,
            labels: &labels,
            node: "n",
            taints: &[],
            pressure: Pressure::default(),
            allowed_sysctls: &[],
        };
        let spec = |cpu: &str, priority: i32, selector: Value| {
            json!({"priority": priority, "nodeSelector": selector, "containers": [{"name": "a",
                "resources": {"requests": {"cpu": cpu}}, "ports": [{"containerPort": 80, "hostPort": 80}]}]})
        };
        let other =
            Arc::new(pod(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "600m"}}}]})));
        let others = std::slice::from_ref(&other);
        let critical = 2_000_000_000;
        let got = admit(&pod(spec("500m", critical, json!({}))), others, &facts);
        assert_eq!(got, Ok(vec![other.clone()]));
        assert_eq!(admit(&pod(spec("400m", critical, json!({}))), others, &facts), Ok(vec![]));
        for (pod, others, reason) in [
            (pod(spec("500m", 0, json!({}))), others, "OutOfcpu"),
            (pod(spec("500m", critical, json!({"disk": "ssd"}))), others, "NodeAffinity"),
            (
                pod(spec("100m", critical, json!({}))),
                &[Arc::new(pod(spec("100m", 0, json!({}))))][..],
                "NodePorts",
            ),
            (pod(spec("2", critical, json!({}))), others, "UnexpectedAdmissionError"),
        ] {
            assert_eq!(admit(&pod, others, &facts).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn what_a_node_takes_that_is_short_of_something() {
        let (allocatable, labels) = (BTreeMap::new(), BTreeMap::new());
        let memory = Pressure { memory: true, ..Pressure::default() };
        let disk = Pressure { disk: true, ..Pressure::default() };
        let both = Pressure { disk: true, ..memory };
        let none = json!({"containers": [{"name": "a"}]});
        let asks = json!({"containers": [{"name": "a", "resources": {"requests": {"memory": "1Mi"}}}]});
        let tolerates = json!({"containers": [{"name": "a"}],
            "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
        let critical = json!({"containers": [{"name": "a"}], "priority": 2_000_000_000});
        for (pressure, spec, want) in [
            (Pressure::default(), &none, None),
            (memory, &none, Some("The node had condition: [MemoryPressure]. ")),
            (memory, &asks, None),
            (memory, &tolerates, None),
            (memory, &critical, None),
            (disk, &asks, Some("The node had condition: [DiskPressure]. ")),
            (both, &tolerates, Some("The node had condition: [DiskPressure MemoryPressure]. ")),
            (both, &critical, None),
        ] {
            let facts = AdmitFacts {
                allocatable: &allocatable,
                labels: &labels,
                node: "n",
                taints: &[],
                pressure,
                allowed_sysctls: &[],
            };
            let got = admit(&pod(spec.clone()), &[], &facts).err();
            let want = want.map(|message| Rejection { reason: "Evicted".into(), message: message.into() });
            assert_eq!(got, want, "{pressure:?} {spec}");
        }
    }
}
