//! Converts requests and limits to cgroup values. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use std::collections::HashMap;

use super::spec::{self, Qos, Role};
use crate::config::cpu_quotas::CpuQuotas;

/// Cpu shares for thousandths of a cpu.
pub fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Memory of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it, in bytes.
    pub total: i64,
    /// Swap that containers of Burstable pods may use, in bytes; 0 for none.
    pub swap: i64,
}

/// The file of a cgroup that limits its swap.
pub const SWAP_MAX: &str = "memory.swap.max";

/// Swap that a container may use: none, or as large a part of the node's as its request is of the memory.
fn swap(pod: &Pod, container: &Container, node: NodeMemory) -> i64 {
    let (request, limit) = (requested(container, "memory"), limited(container, "memory"));
    let is_burstable = spec::qos(&spec::spec(pod)) == Qos::Burstable;
    if spec::is_critical(pod) || !is_burstable || request == 0 || request == limit {
        return 0;
    }
    let part = i128::from(request) * i128::from(node.swap) / i128::from(node.total.max(1));
    i64::try_from(part).unwrap_or(i64::MAX).min(node.swap)
}

/// `oom_score_adj` of a container.
pub fn oom_score(pod: &Pod, role: Role, container: &Container, node_memory: i64) -> i64 {
    let spec = spec::spec(pod);
    // Other critical pods have the score of their class.
    if spec::is_node_critical(pod) {
        return -997;
    }
    match spec::qos(&spec) {
        Qos::Guaranteed => return -997,
        Qos::BestEffort => return 1000,
        Qos::Burstable => {}
    }
    let mut request = requested(container, "memory");
    if role == Role::Sidecar {
        // Not killed before all of the containers that it serves.
        let least = spec.containers.iter().map(|container| requested(container, "memory")).min();
        request = request.max(least.unwrap_or(0));
    }
    let request = request.saturating_add(undivided_memory(&spec));
    (1000 - request.saturating_mul(1000) / node_memory.max(1)).clamp(3, 999)
}

/// A container's part of the memory that the pod requests as a whole and no container requests.
fn undivided_memory(spec: &PodSpec) -> i64 {
    let of_pod = amount_of(spec.resources.as_ref().and_then(|all| all.requests.as_ref()), "memory");
    if of_pod == 0 {
        return 0;
    }
    let of_containers = spec::totals_of_containers(spec, false).get("memory").copied().unwrap_or(0);
    let count = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    of_pod.saturating_sub(of_containers) / i64::try_from(count.max(1)).unwrap_or(i64::MAX)
}

fn amount_of(
    list: Option<
        &std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    >,
    key: &str,
) -> i64 {
    list.and_then(|list| list.get(key)).map(|quantity| spec::amount(key, quantity)).unwrap_or(0)
}

fn requested(container: &Container, key: &str) -> i64 {
    amount_of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()), key)
}

fn limited(container: &Container, key: &str) -> i64 {
    amount_of(container.resources.as_ref().and_then(|resources| resources.limits.as_ref()), key)
}

/// The limit of the pod as a whole; 0 without one.
pub fn limit_of_pod(spec: &PodSpec, key: &str) -> i64 {
    amount_of(spec.resources.as_ref().and_then(|resources| resources.limits.as_ref()), key)
}

/// The container's limit, else that of the pod as a whole.
fn effective_limit(spec: &PodSpec, container: &Container, key: &str) -> i64 {
    match limited(container, key) {
        0 => limit_of_pod(spec, key),
        own => own,
    }
}

/// Resources of one container, without huge pages: these cannot be changed while it runs.
pub fn container(
    pod: &Pod,
    role: Role,
    container: &Container,
    node_memory: NodeMemory,
    quotas: CpuQuotas,
) -> cri::LinuxContainerResources {
    let spec = spec::spec(pod);
    let (request, limit) = (requested(container, "cpu"), effective_limit(&spec, container, "cpu"));
    let memory = effective_limit(&spec, container, "memory");
    let has_request = container
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref())
        .is_some_and(|list| list.contains_key("cpu"));
    let mut unified = HashMap::new();
    // The kernel ends a container as a whole, not one process of it.
    unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    let swap = swap(pod, container, node_memory);
    unified.insert(SWAP_MAX.to_owned(), swap.to_string());
    cri::LinuxContainerResources {
        cpu_period: quotas.period_micros(),
        cpu_quota: quotas.quota(limit),
        cpu_shares: shares(if has_request || limit == 0 { request } else { limit }),
        memory_limit_in_bytes: memory,
        memory_swap_limit_in_bytes: if memory > 0 { memory.saturating_add(swap) } else { 0 },
        oom_score_adj: oom_score(pod, role, container, node_memory.total),
        unified,
        ..cri::LinuxContainerResources::default()
    }
}

/// Resources of the pod as a whole, without huge pages: limits hold only when every container has one.
pub fn pod(spec: &PodSpec, quotas: CpuQuotas) -> cri::LinuxContainerResources {
    let requests = spec::totals(spec, false);
    cri::LinuxContainerResources {
        cpu_period: quotas.period_micros(),
        cpu_quota: quotas.quota(cpu_limit(spec)),
        cpu_shares: shares(requests.get("cpu").copied().unwrap_or(0)),
        memory_limit_in_bytes: memory_limit(spec),
        ..cri::LinuxContainerResources::default()
    }
}

/// Thousandths of a cpu that a pod may use as a whole; 0 without a limit.
pub fn cpu_limit(spec: &PodSpec) -> i64 {
    limit_of_all(spec, "cpu")
}

/// Memory that a pod may use as a whole, in bytes; 0 without a limit.
pub fn memory_limit(spec: &PodSpec) -> i64 {
    limit_of_all(spec, "memory")
}

/// The limit of a pod, or of all its containers together if each of them has one; else 0.
fn limit_of_all(spec: &PodSpec, key: &str) -> i64 {
    let is_limited = limit_of_pod(spec, key) > 0
        || spec::containers(spec)
            .filter(|(role, _)| *role != Role::Ephemeral)
            .all(|(_, c)| limited(&c, key) > 0);
    if is_limited { spec::totals(spec, true).get(key).copied().unwrap_or(0) } else { 0 }
}

/// A QoS class's cgroup under `kubepods`.
pub fn class(qos: Qos) -> &'static str {
    match qos {
        Qos::Guaranteed => "guaranteed",
        Qos::Burstable => "burstable",
        Qos::BestEffort => "besteffort",
    }
}

/// The pod's cgroup under the hierarchy's root.
pub fn cgroup(pod: &Pod) -> String {
    format!("/kubepods/{}/pod{}", class(spec::qos(&spec::spec(pod))), spec::uid(pod))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn one(resources: Value) -> (Pod, Container) {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "a", "resources": resources}]}})).unwrap();
        let container = spec::spec(&pod).containers[0].clone();
        (pod, container)
    }

    #[test]
    fn numbers_of_the_kernel() {
        for (resources, quota, shares, memory, score, group) in [
            (json!({}), 0, 2, 0, 1000, "/kubepods/besteffort/podu"),
            (
                json!({"requests": {"cpu": "500m", "memory": "1Gi"}}),
                0,
                512,
                0,
                750,
                "/kubepods/burstable/podu",
            ),
            (
                json!({"limits": {"cpu": "1500m", "memory": "1Gi"}}),
                150_000,
                1536,
                1 << 30,
                -997,
                "/kubepods/guaranteed/podu",
            ),
            (json!({"limits": {"cpu": "1m"}}), 1000, 2, 0, 999, "/kubepods/burstable/podu"),
        ] {
            let (pod, c) = one(resources.clone());
            let got = container(
                &pod,
                Role::Regular,
                &c,
                NodeMemory { total: 4 << 30, swap: 0 },
                CpuQuotas::default(),
            );
            assert_eq!(
                (got.cpu_quota, got.cpu_shares, got.memory_limit_in_bytes, got.oom_score_adj),
                (quota, shares, memory, score),
                "{resources}"
            );
            assert_eq!(cgroup(&pod), group);
        }
    }

    #[test]
    fn swap_is_limited_without_a_memory_limit_too() {
        const GI: i64 = 1 << 30;
        let request = json!({"requests": {"memory": "1Gi"}});
        let both = json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}});
        let guaranteed = json!({"limits": {"memory": "1Gi", "cpu": "1"}});
        for (resources, node_swap, want, with_memory) in [
            (json!({}), 0, 0, 0),
            (request.clone(), 0, 0, 0),
            (both.clone(), 0, 0, 2 * GI),
            // A quarter of the memory is a quarter of the swap.
            (request, 8 * GI, 2 * GI, 0),
            (both, 8 * GI, 2 * GI, 4 * GI),
            (json!({}), 8 * GI, 0, 0),
            (guaranteed, 8 * GI, 0, GI),
        ] {
            let (pod, c) = one(resources.clone());
            let got = container(
                &pod,
                Role::Regular,
                &c,
                NodeMemory { total: 4 * GI, swap: node_swap },
                CpuQuotas::default(),
            );
            let got = (got.unified[SWAP_MAX].as_str(), got.memory_swap_limit_in_bytes);
            assert_eq!(got, (want.to_string().as_str(), with_memory), "{resources} {node_swap}");
        }
    }

    #[test]
    fn only_node_critical_pods_are_killed_last_whatever_their_class() {
        for (class, priority, want) in [
            ("system-node-critical", 2_000_001_000, -997),
            ("system-cluster-critical", 2_000_000_000, 1000),
            ("system-node-critical", 0, 1000),
            ("", 0, 1000),
        ] {
            let (mut pod, container) = one(json!({}));
            let spec = pod.spec.as_mut().unwrap();
            (spec.priority_class_name, spec.priority) = (Some(class.into()), Some(priority));
            assert_eq!(oom_score(&pod, Role::Regular, &container, 1 << 30), want, "{class} {priority}");
        }
    }

    #[test]
    fn containers_without_a_limit_have_that_of_the_pod() {
        const GI: i64 = 1 << 30;
        let whole =
            json!({"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}});
        let requests = json!({"requests": {"cpu": "1", "memory": "2Gi"}});
        let (a_part, twice) =
            (json!({"requests": {"memory": "1Gi"}}), json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        // The pod, the first container, its quota, shares, memory and score, and the score of a container without resources.
        for (of_pod, own, quota, shares, memory, score, other) in [
            // Memory that no container requests is divided among all.
            (&whole, json!({}), 200_000, 2048, 4 * GI, 875, 875),
            (&whole, a_part.clone(), 200_000, 2048, 4 * GI, 813, 938),
            (&whole, twice, 100_000, 1024, GI, 875, 875),
            (&whole, json!({"requests": {"cpu": "100m"}}), 200_000, 102, 4 * GI, 875, 875),
            (&requests, a_part.clone(), 0, 2, 0, 813, 938),
            (&json!({}), a_part, 0, 2, 0, 875, 999),
        ] {
            let containers = json!([{"name": "a", "resources": own}, {"name": "b"}]);
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"resources": of_pod, "containers": containers}}))
                    .unwrap();
            let of = |index: usize| {
                let c = &spec::spec(&pod).containers[index].clone();
                container(&pod, Role::Regular, c, NodeMemory { total: 8 * GI, swap: 0 }, CpuQuotas::default())
            };
            let got = of(0);
            assert_eq!(
                (got.cpu_quota, got.cpu_shares, got.memory_limit_in_bytes, got.oom_score_adj),
                (quota, shares, memory, score),
                "{of_pod} {own}"
            );
            assert_eq!(of(1).oom_score_adj, other, "{of_pod} {own}");
        }
    }

    #[test]
    fn a_sidecar_is_not_killed_before_all_others() {
        for (sidecar, containers, of_pod, want) in [
            ("0", ["1Gi", "2Gi"], "0", 875),
            ("2Gi", ["1Gi", "4Gi"], "0", 750),
            ("0", ["0", "4Gi"], "0", 999),
            // Another 3 GiB for three containers.
            ("0", ["1Gi", "1Gi"], "5Gi", 750),
        ] {
            let one = |name: &str, memory: &str| json!({"name": name, "resources": {"requests": {"memory": memory}}});
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "resources": {"requests": {"memory": of_pod}},
                "initContainers": [one("s", sidecar)],
                "containers": [one("a", containers[0]), one("b", containers[1])],
            }}))
            .unwrap();
            let own = &spec::spec(&pod).init_containers.clone().unwrap()[0];
            assert_eq!(
                oom_score(&pod, Role::Sidecar, own, 8 << 30),
                want,
                "{sidecar} {containers:?} {of_pod}"
            );
        }
    }

    #[test]
    fn a_pod_is_limited_only_when_every_container_is() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}},
            {"name": "b", "resources": {"limits": {"memory": "1Gi"}}},
        ]}))
        .unwrap();
        let got = pod(&spec, CpuQuotas::default());
        assert_eq!((got.cpu_quota, got.memory_limit_in_bytes, got.cpu_shares), (0, 2 << 30, 1024));
    }

    #[test]
    fn quotas_follow_the_settings_of_the_node() {
        let all = json!({"cpu": "500m", "memory": "1Gi"});
        let (pod_of_one, c) = one(json!({"requests": all, "limits": all}));
        for (quotas, period, quota) in [
            (CpuQuotas::new(Duration::from_millis(20), true), 20_000, 10_000),
            (CpuQuotas::new(Duration::from_millis(20), false), 20_000, -1),
        ] {
            let own = container(&pod_of_one, Role::Regular, &c, NodeMemory::default(), quotas);
            let whole = pod(&spec::spec(&pod_of_one), quotas);
            assert_eq!((own.cpu_period, own.cpu_quota), (period, quota));
            assert_eq!((whole.cpu_period, whole.cpu_quota), (period, quota));
            assert_eq!((own.cpu_shares, whole.cpu_shares), (512, 512), "weights are not limits");
        }
    }
}
