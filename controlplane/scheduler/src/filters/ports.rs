//! Host ports: two pods on a node cannot have the same.

use super::super::node::NodeInfo;
use super::super::pod::{HostPort, PodInfo};
use crate::rejection::{Plugin, Rejection};

/// Whether the pod's host ports are free beside those in use and those promised.
pub fn check(pod: &PodInfo, node: &NodeInfo, promised: &[&PodInfo]) -> Result<(), Rejection> {
    let taken = node.ports.iter().chain(promised.iter().flat_map(|p| &p.ports));
    if pod.ports.is_empty() || !taken.into_iter().any(|t| pod.ports.iter().any(|p| clash(p, t))) {
        return Ok(());
    }
    Err(Rejection::new(Plugin::NodePorts, "node(s) didn't have free ports for the requested pod ports"))
}

fn clash(a: &HostPort, b: &HostPort) -> bool {
    const ALL: &str = "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == ALL || b.ip == ALL)
}
