//! Converts requests and limits to cgroup values. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use std::collections::HashMap;

use super::spec::{self, Qos, Role};

const PERIOD: i64 = 100_000;
/// The kernel takes no larger quota, in microseconds.
const MAX_QUOTA: i64 = (1 << 44) - 1;

/// Cpu shares for thousandths of a cpu.
pub fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Cpu quota in microseconds per period for thousandths of a cpu; 0 is unlimited.
pub fn quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(PERIOD) / 1000).clamp(1000, MAX_QUOTA) }
}

/// `oom_score_adj` of a container.
pub fn oom_score(pod: &Pod, role: Role, container: &Container, node_memory: i64) -> i64 {
    let spec = spec::spec(pod);
    if spec::is_critical(pod) {
        return -997;
    }
    match spec::qos(&spec) {
        Qos::Guaranteed => return -997,
        Qos::BestEffort => return 1000,
        Qos::Burstable => {}
    }
    let score = |container: &Container| {
        let request = requested(container, "memory");
        (1000 - request.saturating_mul(1000) / node_memory.max(1)).clamp(3, 999)
    };
    let own = score(container);
    if role != Role::Sidecar {
        return own;
    }
    // A sidecar must not be killed before the containers it serves.
    spec.containers.iter().map(score).chain([own]).min().unwrap_or(own)
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

/// Resources of one container.
pub fn container(
    pod: &Pod,
    role: Role,
    container: &Container,
    node_memory: i64,
) -> cri::LinuxContainerResources {
    let (request, limit) = (requested(container, "cpu"), limited(container, "cpu"));
    let memory = limited(container, "memory");
    let has_request = container
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref())
        .is_some_and(|list| list.contains_key("cpu"));
    let mut unified = HashMap::new();
    // The kernel ends a container as a whole, not one process of it.
    unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    cri::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(limit),
        cpu_shares: shares(if has_request || limit == 0 { request } else { limit }),
        memory_limit_in_bytes: memory,
        memory_swap_limit_in_bytes: memory,
        oom_score_adj: oom_score(pod, role, container, node_memory),
        hugepage_limits: hugepages(container),
        unified,
        ..cri::LinuxContainerResources::default()
    }
}

fn hugepages(container: &Container) -> Vec<cri::HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits
        .into_iter()
        .flatten()
        .filter_map(|(key, quantity)| {
            let size = key.strip_prefix("hugepages-")?;
            // The kernel says 2MB where the API says 2Mi.
            let page_size = size.replace('i', "B");
            Some(cri::HugepageLimit {
                page_size,
                limit: u64::try_from(spec::amount(key, quantity)).unwrap_or(0),
            })
        })
        .collect()
}

/// Resources of the pod as a whole: limits hold only when every container has one.
pub fn pod(spec: &PodSpec) -> cri::LinuxContainerResources {
    let (requests, limits) = (spec::totals(spec, false), spec::totals(spec, true));
    let pod_level = |key: &str| {
        amount_of(spec.resources.as_ref().and_then(|resources| resources.limits.as_ref()), key) > 0
    };
    let all = |key: &str| {
        pod_level(key)
            || spec::containers(spec)
                .filter(|(role, _)| *role != Role::Ephemeral)
                .all(|(_, c)| limited(&c, key) > 0)
    };
    let limit = |key: &str| if all(key) { limits.get(key).copied().unwrap_or(0) } else { 0 };
    cri::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(limit("cpu")),
        cpu_shares: shares(requests.get("cpu").copied().unwrap_or(0)),
        memory_limit_in_bytes: limit("memory"),
        ..cri::LinuxContainerResources::default()
    }
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
            let got = container(&pod, Role::Regular, &c, 4 << 30);
            assert_eq!(
                (got.cpu_quota, got.cpu_shares, got.memory_limit_in_bytes, got.oom_score_adj),
                (quota, shares, memory, score),
                "{resources}"
            );
            assert_eq!(cgroup(&pod), group);
        }
    }

    #[test]
    fn a_pod_is_limited_only_when_every_container_is() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}},
            {"name": "b", "resources": {"limits": {"memory": "1Gi"}}},
        ]}))
        .unwrap();
        let got = pod(&spec);
        assert_eq!((got.cpu_quota, got.memory_limit_in_bytes, got.cpu_shares), (0, 2 << 30, 1024));
    }
}
