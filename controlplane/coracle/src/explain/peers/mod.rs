//! Spans that other servers of the cluster have. A search asks them at each step; they never ask others on its behalf.

// One server that is asked.
pub mod connection;
// All of them during one search.
mod asking;
#[cfg(test)]
mod tests;

use coracle_apiserver::nodes::relay::Peers;
use coracle_timeline::Elsewhere;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asking::Asking;
use connection::Peer;

/// How long a server that did not answer is not asked again.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// A server did not answer.
struct Failure {
    at: Instant,
    why: String,
}

/// Servers that did not answer, by address.
type Failures = Arc<Mutex<HashMap<String, Failure>>>;

/// The other servers of the store.
pub struct ServerPeers {
    servers: Arc<Peers>,
    failures: Failures,
}

impl ServerPeers {
    /// Asks these servers.
    pub fn new(servers: Peers) -> Self {
        Self { servers: Arc::new(servers), failures: Failures::default() }
    }

    /// The servers for one search, if there are any. Called in a runtime, which the search waits for on a thread of its own.
    pub fn begin(&self) -> Option<Box<dyn Elsewhere>> {
        let servers = self.servers.servers();
        if servers.is_empty() {
            return None;
        }
        self.failures.lock().retain(|_, failure| failure.at.elapsed() < LEFT_ALONE);
        let mut asking = Asking::new(self.failures.clone());
        servers.into_iter().for_each(|server| asking.add(Peer::new(server, self.servers.clone())));
        Some(Box::new(asking))
    }
}
