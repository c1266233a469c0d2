//! Connections that agents open towards the server, for nodes that it cannot dial: an agent keeps a few of them idle, and
//! the server uses each for one connection to the node's API.

use super::forward;
use crate::apiserver::inbound::Inbound;
use crate::apiserver::respond::{self, Body};
use crate::apiserver::user::{MASTERS, User};
use coracle_proto::status::ApiError;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The protocol that is upgraded to.
pub const PROTOCOL: &str = "coracle-tunnel";
const PATH: &str = "/coracle/tunnel/";
/// Agents open new ones before the old ones are this old.
const STALE: Duration = Duration::from_secs(75);
/// How many a node may keep idle.
const MOST: usize = 16;

/// A connection to a node's agent.
pub type Idle = TokioIo<Upgraded>;

/// Idle connections by node.
#[derive(Default)]
pub struct Tunnels {
    idle: Mutex<HashMap<String, Vec<(Instant, Idle)>>>,
    arrived: Notify,
}

/// The node that a path is the tunnel of.
pub fn node_of(path: &str) -> Option<&str> {
    path.strip_prefix(PATH).filter(|node| !node.is_empty() && !node.contains('/'))
}

/// Whether somebody may open tunnels for a node: the node itself.
pub fn may(user: &User, node: &str) -> bool {
    user.node() == Some(node) || user.groups.iter().any(|group| group == MASTERS)
}

impl Tunnels {
    /// Accepts a connection of an agent; it is idle until somebody needs it.
    pub fn accept(
        self: &Arc<Self>,
        node: &str,
        mut request: Request<Inbound>,
    ) -> Result<Response<Body>, ApiError> {
        let asked = request.headers().get(UPGRADE).is_some_and(|value| value == PROTOCOL);
        let Some(upgrade) = forward::client_side(&mut request).filter(|_| asked) else {
            return Err(ApiError::bad_request("unable to upgrade: missing upgrade headers in request"));
        };
        let (tunnels, node) = (self.clone(), node.to_owned());
        tokio::spawn(async move {
            if let Ok(connection) = upgrade.await {
                tunnels.add(node, TokioIo::new(connection));
            }
        });
        let mut response = respond::text(200, "");
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().clear();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        Ok(response)
    }

    fn add(&self, node: String, connection: Idle) {
        let mut idle = self.idle.lock();
        let of_node = idle.entry(node).or_default();
        of_node.retain(|(since, _)| since.elapsed() < STALE);
        if of_node.len() >= MOST {
            of_node.remove(0);
        }
        of_node.push((Instant::now(), connection));
        drop(idle);
        self.arrived.notify_waiters();
    }

    /// The youngest idle connection.
    fn pop(&self, node: &str) -> Option<Idle> {
        let mut idle = self.idle.lock();
        let of_node = idle.get_mut(node)?;
        of_node.retain(|(since, _)| since.elapsed() < STALE);
        of_node.pop().map(|(_, connection)| connection)
    }

    /// Whether a node comes to the server by tunnels. One that stops to do so is forgotten after a while.
    pub fn has(&self, node: &str) -> bool {
        self.idle.lock().contains_key(node)
    }

    /// Takes a connection; waits for one when all are in use.
    pub async fn take(&self, node: &str) -> Idle {
        loop {
            let arrived = self.arrived.notified();
            if let Some(connection) = self.pop(node) {
                return connection;
            }
            arrived.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_opens_tunnels_for_itself() {
        assert_eq!(node_of("/coracle/tunnel/n1"), Some("n1"));
        assert_eq!(node_of("/coracle/tunnel/"), None);
        assert_eq!(node_of("/coracle/tunnel/n1/x"), None);
        let user = |name: &str, group: &str| User {
            name: name.into(),
            groups: vec![group.into()],
            ..User::default()
        };
        assert!(may(&user("system:node:n1", "system:nodes"), "n1"));
        assert!(!may(&user("system:node:n2", "system:nodes"), "n1"));
        assert!(!may(&user("n1", "people"), "n1"));
        assert!(!may(&user("system:node:n1", "people"), "n1"), "a name alone makes nobody a node");
        assert!(may(&user("admin", MASTERS), "n1"));
    }
}
