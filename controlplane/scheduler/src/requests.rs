//! What a pod asks for.

use super::resize::{Reported, Sizes};
use super::resources::Resources;
use super::wire::{PodSpec, PodStatus};

/// What a container without a CPU request counts as when nodes are compared, in millicores.
const DEFAULT_CPU: i64 = 100;
/// What a container without a memory request counts as when nodes are compared, in bytes.
const DEFAULT_MEMORY: i64 = 200 << 20;

/// What a pod needs while it runs: containers and sidecars together, or the largest init container with the sidecars
/// before it, whichever is more; pod-level requests win; overhead on top. While it is resized, what it has counts as well.
pub fn pod_requests(spec: &PodSpec, status: &PodStatus) -> Resources {
    total(spec, &Reported::of(status), |sizes| sizes.amounts(), true)
}

/// As [`pod_requests`] for CPU and memory, where containers that ask for nothing count a little.
pub fn comparable_requests(spec: &PodSpec, status: &PodStatus) -> (i64, i64) {
    let of = |sizes: &Sizes<'_>| {
        let mut asked = sizes.amounts();
        if !sizes.has("cpu") {
            asked.cpu = DEFAULT_CPU;
        }
        if !sizes.has("memory") {
            asked.memory = DEFAULT_MEMORY;
        }
        asked
    };
    let sum = total(spec, &Reported::of(status), of, false);
    (sum.cpu, sum.memory)
}

fn total(
    spec: &PodSpec,
    reported: &Reported<'_>,
    of: impl Fn(&Sizes<'_>) -> Resources,
    all: bool,
) -> Resources {
    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&of(&reported.container(container)), 1);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for container in &spec.init_containers {
        if container.restart_policy.as_deref() == Some("Always") {
            let asked = of(&reported.container(container));
            sum.add(&asked, 1);
            sidecars.add(&asked, 1);
            peak.max(&sidecars);
        } else {
            let mut with = of(&Sizes::asked(&container.resources.requests));
            with.add(&sidecars, 1);
            peak.max(&with);
        }
    }
    sum.max(&peak);
    if let Some(pod) = &spec.resources {
        let asked = reported.whole(pod).amounts();
        if pod.requests.contains_key("cpu") {
            sum.cpu = asked.cpu;
        }
        if pod.requests.contains_key("memory") {
            sum.memory = asked.memory;
        }
        if all {
            for name in pod.requests.keys().filter(|name| name.starts_with("hugepages-")) {
                let missing = asked.extended(name).saturating_sub(sum.extended(name));
                let name = name.as_str().into();
                sum.add(&Resources { extended: vec![(name, missing)], ..Resources::default() }, 1);
            }
        }
    }
    sum.add(&Resources::parse(&spec.overhead), 1);
    sum.clamp();
    sum
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::resources::LARGEST;
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_init_containers_sidecars_and_overhead() {
        let cpu = |n: &str| json!({"resources": {"requests": {"cpu": n}}});
        let sidecar = |n: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": n}}});
        let table = [
            (json!({"containers": [cpu("100m"), cpu("0.2")]}), 300),
            (json!({"containers": [cpu("100m")], "initContainers": [cpu("1")]}), 1000),
            (json!({"containers": [cpu("100m")], "initContainers": [sidecar("300m"), cpu("1")]}), 1300),
            (json!({"containers": [cpu("100m")], "initContainers": [cpu("200m"), sidecar("300m")]}), 400),
            (json!({"containers": [cpu("100m")], "overhead": {"cpu": "50m"}}), 150),
            (json!({"containers": [cpu("100m")], "resources": {"requests": {"cpu": 2}}}), 2000),
        ];
        for (spec, expected) in table {
            let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(pod_requests(&spec, &PodStatus::default()).cpu, expected, "{spec:?}");
        }
    }

    #[test]
    fn what_asks_for_nothing_counts_a_little_when_nodes_are_compared() {
        let spec: PodSpec = serde_json::from_value(
            json!({"containers": [{}, {"resources": {"requests": {"memory": "1Gi"}}}]}),
        )
        .unwrap();
        assert_eq!(comparable_requests(&spec, &PodStatus::default()), (200, (200 << 20) + (1 << 30)));
        assert!(!pod_requests(&spec, &PodStatus::default()).is_zero());
    }

    #[test]
    fn requests_of_any_size_do_not_wrap_around() {
        let huge = json!({"resources": {"requests": {"cpu": "9E", "memory": "5Ei", "x.io/a": "9E"}}});
        let spec = json!({"containers": [huge, huge, huge], "initContainers": [huge], "overhead": {"memory": "7Ei"}});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let asked = pod_requests(&spec, &PodStatus::default());
        assert_eq!((asked.cpu, asked.memory, asked.extended("x.io/a")), (LARGEST, LARGEST, LARGEST));
        let mut node = Resources::default();
        (0..4096).for_each(|_| node.add(&asked, 1));
        (0..4096).for_each(|_| node.add(&asked, -1));
        assert!(node.is_zero(), "{node:?}");
    }
}
