//! Connections of the server's own to what runs in the cluster: webhooks. The server need not be on the pod network; the
//! agents are.

use super::node::{Io, Nodes};
use std::sync::{Arc, OnceLock, Weak};
use tokio::net::TcpStream;

/// Where something listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its address or name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The node that it runs on; empty when that is not known.
    pub node: String,
}

/// Dials; by addresses alone until it knows the agents.
#[derive(Default)]
pub struct Reach(OnceLock<Weak<Nodes>>);

impl Reach {
    /// From now on through agents, too.
    pub fn connect(&self, nodes: &Arc<Nodes>) {
        let _ = self.0.set(Arc::downgrade(nodes));
    }

    /// A connection: through the agent of the node, and straight where there is none or it does not get there.
    pub async fn dial(&self, spot: &Spot) -> std::io::Result<Box<dyn Io>> {
        let nodes = self.0.get().and_then(Weak::upgrade).filter(|_| !spot.node.is_empty());
        if let Some(nodes) = nodes {
            let bare = if spot.host.contains(':') { format!("[{}]", spot.host) } else { spot.host.clone() };
            match nodes.reach(&spot.node, &format!("{bare}:{}", spot.port)).await {
                Ok(stream) => return Ok(stream),
                Err(why) => tracing::debug!(node = spot.node, %why, "not through the agent"),
            }
        }
        let stream = TcpStream::connect((spot.host.as_str(), spot.port)).await?;
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}
