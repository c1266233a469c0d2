//! Amounts of resources, and what a pod asks for.

use super::wire::{Container, PodSpec, Quantities};
use coracle_proto::quantity::Quantity;
use serde_json::Value;
use std::sync::Arc;

/// What a container without a CPU request counts as when nodes are compared, in millicores.
const DEFAULT_CPU: i64 = 100;
/// What a container without a memory request counts as when nodes are compared, in bytes.
const DEFAULT_MEMORY: i64 = 200 << 20;

/// The largest amount that is told from larger ones: 2^50. No machine has more, sums over all pods of a node stay far from
/// the end of the number's range, and so do products with weights. A pod cannot make a sum overflow by what it asks for.
const LARGEST: i64 = 1 << 50;

/// An amount of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral: i64,
    /// Everything else, by name, sorted.
    pub extended: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// From a resource list; CPU to the next millicore, what cannot be read counts as nothing.
    pub fn parse(list: &Quantities) -> Self {
        let mut made = Self::default();
        for (name, value) in list {
            match name.as_str() {
                "cpu" => made.cpu = milli(value),
                "memory" => made.memory = whole(value),
                "ephemeral-storage" => made.ephemeral = whole(value),
                "pods" => {}
                other => made.extended.push((other.into(), whole(value))),
            }
        }
        made
    }

    /// Adds, or with -1 takes away.
    pub fn add(&mut self, other: &Self, sign: i64) {
        self.cpu = self.cpu.saturating_add(sign * other.cpu);
        self.memory = self.memory.saturating_add(sign * other.memory);
        self.ephemeral = self.ephemeral.saturating_add(sign * other.ephemeral);
        for (name, amount) in &other.extended {
            match self.extended.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(at) => self.extended[at].1 = self.extended[at].1.saturating_add(sign * amount),
                Err(at) => self.extended.insert(at, (name.clone(), sign * amount)),
            }
        }
    }

    /// No more of each than is told apart.
    fn clamp(&mut self) {
        let amounts = [&mut self.cpu, &mut self.memory, &mut self.ephemeral].into_iter();
        for amount in amounts.chain(self.extended.iter_mut().map(|(_, amount)| amount)) {
            *amount = (*amount).clamp(-LARGEST, LARGEST);
        }
    }

    /// The larger of each.
    pub fn max(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.extended {
            match self.extended.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(at) => self.extended[at].1 = self.extended[at].1.max(*amount),
                Err(at) => self.extended.insert(at, (name.clone(), *amount)),
            }
        }
    }

    /// The amount of a resource that has no field of its own.
    pub fn extended(&self, name: &str) -> i64 {
        self.extended.binary_search_by(|(n, _)| n.as_ref().cmp(name)).map_or(0, |at| self.extended[at].1)
    }

    /// Whether nothing is asked for.
    pub fn is_zero(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.ephemeral == 0 && self.extended.iter().all(|(_, n)| *n == 0)
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// A quantity in thousandths.
pub fn milli(value: &Value) -> i64 {
    quantity(value).map_or(0, |q| q.milli_value()).clamp(-LARGEST, LARGEST)
}

/// A quantity in whole units.
pub fn whole(value: &Value) -> i64 {
    quantity(value).map_or(0, |q| q.value()).clamp(-LARGEST, LARGEST)
}

/// What a pod needs while it runs: containers and sidecars together, or the largest init container with the sidecars
/// before it, whichever is more; pod-level requests win; overhead on top.
pub fn pod_requests(spec: &PodSpec) -> Resources {
    let of = |c: &Container| Resources::parse(&c.resources.requests);
    total(spec, of, true)
}

/// As [`pod_requests`] for CPU and memory, where containers that ask for nothing count a little.
pub fn comparable_requests(spec: &PodSpec) -> (i64, i64) {
    let of = |c: &Container| {
        let mut asked = Resources::parse(&c.resources.requests);
        if !c.resources.requests.contains_key("cpu") {
            asked.cpu = DEFAULT_CPU;
        }
        if !c.resources.requests.contains_key("memory") {
            asked.memory = DEFAULT_MEMORY;
        }
        asked
    };
    let sum = total(spec, of, false);
    (sum.cpu, sum.memory)
}

fn total(spec: &PodSpec, of: impl Fn(&Container) -> Resources, all: bool) -> Resources {
    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&of(container), 1);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for container in &spec.init_containers {
        let asked = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sum.add(&asked, 1);
            sidecars.add(&asked, 1);
            peak.max(&sidecars);
        } else {
            let mut with = asked;
            with.add(&sidecars, 1);
            peak.max(&with);
        }
    }
    sum.max(&peak);
    if let Some(pod) = &spec.resources {
        let asked = Resources::parse(&pod.requests);
        if pod.requests.contains_key("cpu") {
            sum.cpu = asked.cpu;
        }
        if pod.requests.contains_key("memory") {
            sum.memory = asked.memory;
        }
        if all {
            for (name, amount) in &asked.extended {
                let before = sum.extended(name);
                sum.add(
                    &Resources { extended: vec![(name.clone(), amount - before)], ..Resources::default() },
                    1,
                );
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
            assert_eq!(pod_requests(&spec).cpu, expected, "{spec:?}");
        }
    }

    #[test]
    fn what_asks_for_nothing_counts_a_little_when_nodes_are_compared() {
        let spec: PodSpec = serde_json::from_value(
            json!({"containers": [{}, {"resources": {"requests": {"memory": "1Gi"}}}]}),
        )
        .unwrap();
        assert_eq!(comparable_requests(&spec), (200, (200 << 20) + (1 << 30)));
        assert!(!pod_requests(&spec).is_zero());
    }

    #[test]
    fn requests_of_any_size_do_not_wrap_around() {
        let huge = json!({"resources": {"requests": {"cpu": "9E", "memory": "5Ei", "x.io/a": "9E"}}});
        let spec = json!({"containers": [huge, huge, huge], "initContainers": [huge], "overhead": {"memory": "7Ei"}});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let asked = pod_requests(&spec);
        assert_eq!((asked.cpu, asked.memory, asked.extended("x.io/a")), (LARGEST, LARGEST, LARGEST));
        let mut node = Resources::default();
        (0..4096).for_each(|_| node.add(&asked, 1));
        (0..4096).for_each(|_| node.add(&asked, -1));
        assert!(node.is_zero(), "{node:?}");
    }

    #[test]
    fn extended_resources_add_up() {
        let mut a = Resources::parse(
            &serde_json::from_value(json!({"x.io/gpu": "2", "hugepages-2Mi": "4Mi"})).unwrap(),
        );
        a.add(&Resources::parse(&serde_json::from_value(json!({"x.io/gpu": 1, "a.io/b": 1})).unwrap()), 1);
        assert_eq!(
            (a.extended("x.io/gpu"), a.extended("a.io/b"), a.extended("hugepages-2Mi"), a.extended("no")),
            (3, 1, 4 << 20, 0)
        );
    }
}
