//! Dials endpoints in the cluster, such as webhooks. The server need not be on the pod network; the connection goes
//! through the agent of the endpoint's node.

use super::agent::Nodes;
use super::connection::Io;
use coracle_cli::causes;
use std::sync::Arc;
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

/// Dials endpoints through node agents; the default one dials directly.
#[derive(Default)]
pub struct ClusterDialer(Option<Arc<Nodes>>);

impl ClusterDialer {
    /// Dials through the agents of these nodes.
    pub fn new(nodes: Arc<Nodes>) -> Self {
        Self(Some(nodes))
    }

    /// Connects through the agent of the endpoint's node; directly if there is none or it fails.
    pub async fn dial(&self, endpoint: &Endpoint) -> std::io::Result<Box<dyn Io>> {
        let nodes = self.0.as_ref().filter(|_| !endpoint.node.is_empty());
        if let Some(nodes) = nodes {
            let bare = if endpoint.host.contains(':') {
                format!("[{}]", endpoint.host)
            } else {
                endpoint.host.clone()
            };
            match nodes.dial_via_agent(&endpoint.node, &format!("{bare}:{}", endpoint.port)).await {
                Ok(stream) => return Ok(stream),
                Err(why) => {
                    tracing::debug!(node = endpoint.node, why = %causes::chain(&why), "dial through the node agent failed, dialling directly")
                }
            }
        }
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}
