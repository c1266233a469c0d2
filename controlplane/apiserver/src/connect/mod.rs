//! Requests that are forwarded to a node: logs, exec, attach, port-forward and proxy. The server finds the node,
//! forwards the request to the agent's API and copies bytes between the two connections.

// Reverse tunnels of agents, for nodes that cannot be dialled.
pub mod tunnel;
// Addresses that the server may connect to.
pub mod address;
// TLS to node agents.
pub mod node_tls;
// Connections to node agents.
pub mod node;
// Dials endpoints in the cluster.
pub mod dial;
// Forwards HTTP exchanges, upgrades included.
pub mod forward;
// Logs over WebSocket.
pub mod websocket;
// Subresources of pods.
pub mod pods;
// `metrics.k8s.io`.
pub mod resource_metrics;
// Local volumes of nodes.
pub mod volumes;
// Rewrites links in proxied pages.
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
