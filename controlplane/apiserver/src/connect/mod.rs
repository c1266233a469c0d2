//! Requests that end at a node: logs, exec, attach, port-forward and proxies. The server finds the node, forwards the
//! request to the agent's API and joins the two connections; what flows over them is between client and agent.

// Connections that agents open, for nodes that cannot be dialled.
pub mod tunnel;
// Where the server may connect to.
pub mod address;
// Who a node's agent proves to be.
pub mod trust;
// A connection to a node's agent.
pub mod node;
// Connections of the server's own into the cluster.
pub mod reach;
// One HTTP exchange passed on, upgrades included.
pub mod forward;
// A log in WebSocket messages.
pub mod socket;
// Subresources of pods.
pub mod pods;
// What nodes and pods use.
pub mod usage;
// What nodes keep of volumes.
pub mod volumes;
// Links of pages that come through a proxy.
mod rewrite;
// `/proxy` of pods, services and nodes.
pub mod proxy;

use crate::hook::Connector;
use std::collections::HashMap;
use std::sync::Arc;

/// Every connector, by resource and subresource.
pub fn connectors(nodes: Arc<node::Nodes>) -> HashMap<(String, String), Arc<dyn Connector>> {
    let mut all: HashMap<(String, String), Arc<dyn Connector>> = HashMap::new();
    for what in [pods::Stream::Log, pods::Stream::Exec, pods::Stream::Attach, pods::Stream::PortForward] {
        let stream: Arc<dyn Connector> = Arc::new(pods::Pods { what, nodes: nodes.clone() });
        all.insert(("pods".into(), what.subresource().into()), stream);
    }
    for resource in ["pods", "services", "nodes"] {
        all.insert((resource.into(), "proxy".into()), Arc::new(proxy::Proxy { nodes: nodes.clone() }));
    }
    all
}
