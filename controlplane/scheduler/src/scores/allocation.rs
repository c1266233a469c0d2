//! How much of a node would be left, and how evenly it would be used.

use super::super::node::NodeInfo;
use super::super::pod::PodInfo;
use super::super::resources::Resources;
use super::FULL;
use std::sync::Arc;

/// A resource of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Resource {
    Cpu,
    Memory,
    Ephemeral,
    Extended(Arc<str>),
}

impl Resource {
    /// By its name.
    pub fn named(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::Ephemeral,
            other => Self::Extended(other.into()),
        }
    }

    fn of(&self, resources: &Resources) -> i64 {
        match self {
            Self::Cpu => resources.cpu,
            Self::Memory => resources.memory,
            Self::Ephemeral => resources.ephemeral,
            Self::Extended(name) => resources.extended(name),
        }
    }

    /// What would be in use with the pod, and what there is. Containers without requests count a little.
    fn comparable(&self, pod: &PodInfo, node: &NodeInfo) -> (i64, i64) {
        let all = self.of(&node.allocatable);
        match self {
            Self::Cpu => (node.comparable.0 + pod.comparable.0, all),
            Self::Memory => (node.comparable.1 + pod.comparable.1, all),
            // What the pod does not ask for is no reason for or against a node.
            Self::Extended(_) if self.of(&pod.requests) == 0 => (0, 0),
            _ => (self.of(&node.requested) + self.of(&pod.requests), all),
        }
    }
}

/// How the use of a resource is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Curve {
    /// Emptier is better.
    #[default]
    LeastAllocated,
    /// Fuller is better.
    MostAllocated,
    /// By points of utilization (percent) and score (0 to 10), in increasing order of utilization.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Curve {
    /// The score of a resource of which `used` of `all` would be in use; `all` is positive.
    fn score(&self, used: i64, all: i64) -> i64 {
        let used = used.clamp(0, all);
        match self {
            Self::LeastAllocated => share(all - used, all),
            Self::MostAllocated => share(used, all),
            Self::RequestedToCapacityRatio(points) => interpolate(points, share(used, all)),
        }
    }
}

/// The value of a polyline at a utilization of 0 to [`FULL`].
fn interpolate(points: &[(i64, i64)], at: i64) -> i64 {
    let fine = |(utilization, score): (i64, i64)| (utilization * (FULL / 100), score * (FULL / 10));
    let mut before: Option<(i64, i64)> = None;
    for point in points.iter().copied().map(fine) {
        if at <= point.0 {
            let Some((x, y)) = before else { return point.1 };
            return y + (point.1 - y) * (at - x) / (point.0 - x);
        }
        before = Some(point);
    }
    before.map_or(0, |(_, score)| score)
}

/// How much of a node should be used: the mean over resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    curve: Curve,
    /// With weights; unset: CPU and memory alike.
    resources: Option<Vec<(Resource, i64)>>,
}

impl Default for Fit {
    fn default() -> Self {
        Self::new(Curve::LeastAllocated, vec![(Resource::Cpu, 1), (Resource::Memory, 1)])
    }
}

impl Fit {
    /// With resources and their weights.
    pub fn new(curve: Curve, resources: Vec<(Resource, i64)>) -> Self {
        let usual = matches!(&resources[..], [(Resource::Cpu, a), (Resource::Memory, b)] if a == b)
            && !matches!(curve, Curve::RequestedToCapacityRatio(_));
        Self { curve, resources: (!usual).then_some(resources) }
    }

    /// The score of a node.
    pub fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        match &self.resources {
            None => self.of_cpu_and_memory(pod, node),
            Some(resources) => self.weighted(resources, pod, node),
        }
    }

    fn of_cpu_and_memory(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let pairs = [
            (node.comparable.0 + pod.comparable.0, node.allocatable.cpu),
            (node.comparable.1 + pod.comparable.1, node.allocatable.memory),
        ];
        let (mut sum, mut known) = (0, 0);
        for (used, all) in pairs.into_iter().filter(|(_, all)| *all > 0) {
            sum += self.curve.score(used, all);
            known += 1;
        }
        if known == 0 { 0 } else { sum / known }
    }

    fn weighted(&self, resources: &[(Resource, i64)], pod: &PodInfo, node: &NodeInfo) -> i64 {
        let shaped = matches!(self.curve, Curve::RequestedToCapacityRatio(_));
        let (mut sum, mut weights) = (0, 0);
        for (resource, weight) in resources {
            let (used, all) = resource.comparable(pod, node);
            if all <= 0 {
                continue;
            }
            let score = self.curve.score(used, all);
            // As upstream: a resource without a score has no weight either.
            if score > 0 || !shaped {
                sum += score * weight;
                weights += weight;
            }
        }
        if weights == 0 { 0 } else { sum / weights }
    }
}

fn share(part: i64, all: i64) -> i64 {
    match part.checked_mul(FULL) {
        Some(product) => product / all,
        None => (i128::from(part) * i128::from(FULL) / i128::from(all)) as i64,
    }
}

/// Best where resources are used to the same degree; nothing for pods that ask for none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balance {
    /// Unset: CPU and memory.
    resources: Option<Vec<Resource>>,
}

impl Balance {
    /// Of some resources.
    pub fn of(resources: Vec<Resource>) -> Self {
        let usual = resources == [Resource::Cpu, Resource::Memory];
        Self { resources: (!usual).then_some(resources) }
    }

    /// The score of a node.
    pub fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        match &self.resources {
            None => balance(pod, node),
            Some(resources) => deviation(resources, pod, node),
        }
    }
}

fn balance(pod: &PodInfo, node: &NodeInfo) -> i64 {
    if pod.requests.cpu == 0 && pod.requests.memory == 0 {
        return 0;
    }
    let degree = |used: i64, all: i64| if all > 0 { share(used.min(all), all) } else { FULL };
    let cpu = degree(node.requested.cpu + pod.requests.cpu, node.allocatable.cpu);
    let memory = degree(node.requested.memory + pod.requests.memory, node.allocatable.memory);
    // The standard deviation of two values is half their distance.
    FULL - (cpu - memory).abs() / 2
}

fn deviation(resources: &[Resource], pod: &PodInfo, node: &NodeInfo) -> i64 {
    if resources.iter().all(|r| r.of(&pod.requests) == 0) {
        return 0;
    }
    let degree = |resource: &Resource| {
        let (all, asked) = (resource.of(&node.allocatable), resource.of(&pod.requests));
        let skipped = all <= 0 || (asked == 0 && matches!(resource, Resource::Extended(_)));
        (!skipped).then(|| share((resource.of(&node.requested) + asked).clamp(0, all), all) as f64)
    };
    let degrees: Vec<f64> = resources.iter().filter_map(degree).collect();
    let count = degrees.len().max(1) as f64;
    let mean = degrees.iter().sum::<f64>() / count;
    let variance = degrees.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / count;
    FULL - variance.sqrt().round() as i64
}
