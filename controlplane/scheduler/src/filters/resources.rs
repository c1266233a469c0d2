//! CPU, memory, ephemeral storage, number of pods, and resources that vendors name.

use super::super::node::NodeInfo;
use super::super::pod::PodInfo;
use super::super::resources::Resources;
use crate::devices::Devices;
use crate::rejection::{Plugin, Rejection};
use std::borrow::Cow;

/// Whether the node has what the pod asks for, beside what runs there and what is promised.
/// Resources that devices are behind are left to their claims.
pub fn check(
    pod: &PodInfo,
    node: &NodeInfo,
    promised: &[&PodInfo],
    devices: &Devices,
) -> Result<(), Rejection> {
    let mut reserved = Resources::default();
    for other in promised {
        reserved.add(&other.requests, 1);
    }
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut hopeless = false;
    let mut lacks = |reason: Cow<'static, str>, asked: i64, used: i64, all: i64| {
        if asked > 0 && asked > all - used {
            reasons.push(reason);
            hopeless |= asked > all;
        }
    };
    let pods = (node.pods.len() + promised.len()) as i64;
    lacks("Too many pods".into(), 1, pods, node.max_pods);
    let (asked, used, all) = (&pod.requests, &node.requested, &node.allocatable);
    lacks("Insufficient cpu".into(), asked.cpu, used.cpu + reserved.cpu, all.cpu);
    lacks("Insufficient memory".into(), asked.memory, used.memory + reserved.memory, all.memory);
    lacks(
        "Insufficient ephemeral-storage".into(),
        asked.ephemeral,
        used.ephemeral + reserved.ephemeral,
        all.ephemeral,
    );
    let ignored = pod.rules.as_ref().map(|rules| &rules.ignored);
    for (name, amount) in &asked.extended {
        if ignored.is_some_and(|ignored| ignored.has(name)) {
            continue;
        }
        let used = used.extended(name) + reserved.extended(name);
        if *amount > 0 && *amount > all.extended(name) - used && !devices.is_backed(name, node) {
            lacks(format!("Insufficient {name}").into(), *amount, used, all.extended(name));
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection { plugin: Plugin::NodeResourcesFit, reasons, hopeless })
}
