//! Reverse tunnels, for nodes that the server cannot dial: an agent keeps idle connections to the server open, and the
//! server uses each for one connection to the agent's API.

use super::forward;
use crate::request_body::RequestBody;
use crate::respond::{self, Body};
use coracle_client::user::{MASTERS, User};
use coracle_proto::status::ApiError;
use http::header::UPGRADE;
use http::{Request, Response};
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

/// The connections of one node.
struct OfNode<C> {
    /// When the last one came.
    last: Instant,
    idle: Vec<(Instant, C)>,
}

/// Idle connections by node. A node of which none came for a while is forgotten.
struct Table<C>(HashMap<String, OfNode<C>>);

impl<C> Default for Table<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C> Table<C> {
    fn add(&mut self, node: String, connection: C, now: Instant) {
        let fresh = |since: Instant| now.saturating_duration_since(since) < STALE;
        self.0.retain(|_, of_node| {
            of_node.idle.retain(|(since, _)| fresh(*since));
            fresh(of_node.last)
        });
        let of_node = self.0.entry(node).or_insert_with(|| OfNode { last: now, idle: Vec::new() });
        if of_node.idle.len() >= MOST {
            of_node.idle.remove(0);
        }
        of_node.last = now;
        of_node.idle.push((now, connection));
    }

    /// The youngest idle connection.
    fn pop(&mut self, node: &str, now: Instant) -> Option<C> {
        let of_node = self.0.get_mut(node)?;
        of_node.idle.retain(|(since, _)| now.saturating_duration_since(*since) < STALE);
        of_node.idle.pop().map(|(_, connection)| connection)
    }

    fn has(&mut self, node: &str, now: Instant) -> bool {
        let has = self.0.get(node).is_some_and(|of_node| now.saturating_duration_since(of_node.last) < STALE);
        if !has {
            self.0.remove(node);
        }
        has
    }
}

/// Idle connections by node.
#[derive(Default)]
pub struct Tunnels {
    idle: Mutex<Table<Idle>>,
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
        mut request: Request<RequestBody>,
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
        Ok(respond::switched(PROTOCOL))
    }

    fn add(&self, node: String, connection: Idle) {
        self.idle.lock().add(node, connection, Instant::now());
        self.arrived.notify_waiters();
    }

    fn pop(&self, node: &str) -> Option<Idle> {
        self.idle.lock().pop(node, Instant::now())
    }

    /// Whether a node comes to the server by tunnels. One that stops to do so is forgotten after a while, and so are its
    /// connections; those of a node that is revoked end with their TLS connection.
    pub fn has(&self, node: &str) -> bool {
        self.idle.lock().has(node, Instant::now())
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
    fn a_node_that_opens_no_tunnels_any_more_is_forgotten() {
        let (mut table, begun) = (Table::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        for n in 0..MOST + 5 {
            table.add("a".to_owned(), n, at(0));
        }
        assert_eq!(table.0["a"].idle.len(), MOST, "no more than that are kept");
        assert_eq!(table.pop("a", at(1)), Some(MOST + 4), "the youngest");
        table.add("b".to_owned(), 0, at(60));
        assert_eq!((table.pop("b", at(61)), table.pop("b", at(61))), (Some(0), None));
        assert!(table.has("b", at(70)), "all are in use");
        assert!(!table.has("a", at(80)), "none came for long");
        table.add("c".to_owned(), 0, at(200));
        assert_eq!(table.0.keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!(table.pop("c", at(300)), None, "it is dead by then");
    }

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
