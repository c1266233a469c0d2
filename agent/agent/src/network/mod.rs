//! The network between nodes: tunnel and routes to pods of other nodes, from Node objects.

// The link to other nodes.
mod underlay;
// Desired state of the kernel. Pure.
mod plan;
// Changes of links, addresses, routes and neighbours.
mod links;
// Notifications about changes by others.
mod notifications;
// Applies the plan.
mod apply;
// Masquerades traffic that leaves the cluster.
mod masquerade;
// The task.
mod run;

pub use apply::NetworkError;
pub use links::Links;
pub use plan::mtu_inside;
pub use run::follow;
pub use underlay::{Underlay, underlay};

use crate::config::NetworkMode;

/// MTU of pods for the CNI configuration; `None` for the kernel's default.
pub fn pod_mtu(mode: NetworkMode, ips: &[String]) -> Option<u32> {
    let ip = ips.first()?.parse().ok()?;
    let below = underlay(ip).ok()??;
    Some(mtu_inside(mode, &below))
}
