//! Requests that are forwarded to a node: logs, exec, attach, port-forward and proxy. The server finds the node,
//! forwards the request to the agent's API and copies bytes between the two connections.

// Logs over WebSocket.
pub mod websocket;
// Subresources of pods.
pub mod pods;
// Rewrites links in proxied pages.
mod rewrite;
// `/proxy` of pods, services and nodes.
pub mod proxy;

use crate::authz::Authorizer;
use crate::connector::Connectors;
use crate::nodes::agent::Nodes;
use std::sync::Arc;

/// Every connector. `authz` decides about requests that run something and begin with a GET; with `split_log_streams` (the feature
/// `PodLogsQuerySplitStreams`) a request for a log may name a stream.
pub fn connectors(nodes: &Arc<Nodes>, authz: &Arc<dyn Authorizer>, split_log_streams: bool) -> Connectors {
    let mut all = Connectors::new();
    for what in [pods::Stream::Log, pods::Stream::Exec, pods::Stream::Attach, pods::Stream::PortForward] {
        let stream = pods::Pods { what, nodes: nodes.clone(), authz: authz.clone(), split_log_streams };
        all.insert(("pods".into(), what.subresource().into()), Arc::new(stream));
    }
    for resource in ["pods", "services", "nodes"] {
        let proxy = proxy::Proxy { nodes: nodes.clone(), authz: authz.clone() };
        all.insert((resource.into(), "proxy".into()), Arc::new(proxy));
    }
    all
}
