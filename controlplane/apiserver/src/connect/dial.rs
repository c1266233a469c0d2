//! Dials endpoints in the cluster, such as webhooks. The server need not be on the pod network; the connection goes
//! through the agent of the endpoint's node.

use super::node::{Io, Nodes};
use std::sync::{Arc, OnceLock, Weak};
use tokio::net::TcpStream;

/// An address to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address or name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The node it runs on; empty if unknown.
    pub node: String,
}

/// Dials endpoints through node agents, or directly until [`ClusterDialer::connect`] is called.
#[derive(Default)]
pub struct ClusterDialer(OnceLock<Weak<Nodes>>);

impl ClusterDialer {
    /// Sets the node agents to dial through.
    pub fn connect(&self, nodes: &Arc<Nodes>) {
        let _ = self.0.set(Arc::downgrade(nodes));
    }

    /// Connects through the agent of the endpoint's node; directly if there is none or it fails.
    pub async fn dial(&self, endpoint: &Endpoint) -> std::io::Result<Box<dyn Io>> {
        let nodes = self.0.get().and_then(Weak::upgrade).filter(|_| !endpoint.node.is_empty());
        if let Some(nodes) = nodes {
            let bare = if endpoint.host.contains(':') {
                format!("[{}]", endpoint.host)
            } else {
                endpoint.host.clone()
            };
            match nodes.dial_via_agent(&endpoint.node, &format!("{bare}:{}", endpoint.port)).await {
                Ok(stream) => return Ok(stream),
                Err(why) => {
                    tracing::debug!(node = endpoint.node, %why, "dial through the node agent failed, dialling directly")
                }
            }
        }
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}
