//! How much of a node would be left, and how evenly it would be used.

use super::super::node::NodeInfo;
use super::super::pod::PodInfo;
use super::{FULL, Packing};

/// The part of CPU and memory that stays free (or gets used, for packing), on average.
pub fn fit(pod: &PodInfo, node: &NodeInfo, packing: Packing) -> i64 {
    let pairs = [
        (node.comparable.0 + pod.comparable.0, node.allocatable.cpu),
        (node.comparable.1 + pod.comparable.1, node.allocatable.memory),
    ];
    let (mut sum, mut known) = (0, 0);
    for (used, all) in pairs.into_iter().filter(|(_, all)| *all > 0) {
        let used = used.min(all);
        let part = match packing {
            Packing::LeastAllocated => all - used,
            Packing::MostAllocated => used,
        };
        sum += share(part, all);
        known += 1;
    }
    if known == 0 { 0 } else { sum / known }
}

fn share(part: i64, all: i64) -> i64 {
    match part.checked_mul(FULL) {
        Some(product) => product / all,
        None => (i128::from(part) * i128::from(FULL) / i128::from(all)) as i64,
    }
}

/// Best where CPU and memory are used to the same degree; nothing for pods that ask for nothing.
pub fn balance(pod: &PodInfo, node: &NodeInfo) -> i64 {
    if pod.requests.cpu == 0 && pod.requests.memory == 0 {
        return 0;
    }
    let degree = |used: i64, all: i64| if all > 0 { share(used.min(all), all) } else { FULL };
    let cpu = degree(node.requested.cpu + pod.requests.cpu, node.allocatable.cpu);
    let memory = degree(node.requested.memory + pod.requests.memory, node.allocatable.memory);
    // The standard deviation of two values is half their distance.
    FULL - (cpu - memory).abs() / 2
}
