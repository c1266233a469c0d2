//! The API servers of the cluster, and which of them the agent talks to.
//!
//! The agent starts with the server of its kubeconfig and those given when it joined, learns the others from the EndpointSlices of
//! `default/kubernetes`, and keeps the list in a file for its next start. All connections go to one server until it fails; then the
//! next connection goes to another, after a delay that differs from agent to agent. While there are at least two servers, each has a
//! monitor (`monitor.rs`): when it finds a server dead, connections to that server are closed, so that watches and requests end and
//! are repeated elsewhere, and the service proxy stops to use it.
//!
//! With one server there are no monitors, no delays and no file: connections are opened as the kube client opens them.

// Host and port of a server.
mod address;
// The list on disk.
mod file;
// Which server comes next. Pure.
mod table;
// A connection that ends when its server is found dead.
mod stream;
// Opens connections.
mod dial;
// The API client.
mod client;
// Finds out whether a server is alive.
mod monitor;
// Learns the list and runs the monitors.
mod follow;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use file::ServerList;
pub use follow::service;

use arc_swap::ArcSwapOption;
use dial::{Dialer, Source};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use table::{Health, Table};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Longest list of servers; more are ignored.
pub const MAX_SERVERS: usize = 32;

/// What can go wrong with the servers.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// Not the URL of a server.
    #[error("{url:?} is not the URL of a server: want https://host:port")]
    Url {
        /// The text as given.
        url: String,
    },
    /// The list cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is no list of servers.
    #[error("{path} is not a list of servers")]
    Content {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// No connection to a server.
    #[error("{server} cannot be reached")]
    Unreachable {
        /// The server.
        server: Address,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No connection to a server in time.
    #[error("{server} did not answer within {patience:?}")]
    TimedOut {
        /// The server.
        server: Address,
        /// How long it had.
        patience: Duration,
    },
    /// The certificate of a server is not valid for it.
    #[error("the certificate of {server} is not accepted")]
    Untrusted {
        /// The server.
        server: Address,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kubeconfig is of no use for a client.
    #[error("API client")]
    Client(#[from] kube::Error),
    /// The list is empty.
    #[error("no API server is known")]
    Empty,
    /// A server closed the connection of its monitor without an answer.
    #[error("{server} closed the connection")]
    Closed {
        /// The server.
        server: Address,
    },
}

struct Shared {
    table: Mutex<Table>,
    /// Servers that pods should not be sent to.
    unfit: watch::Sender<Arc<BTreeSet<SocketAddr>>>,
    /// The list has changed.
    changed: Notify,
    /// How often the agent went to another server.
    moves: AtomicU64,
    /// Nodes of the cluster.
    nodes: AtomicUsize,
    dialer: ArcSwapOption<Dialer>,
    /// Where the list is kept, and the servers given when the node joined.
    file: Option<PathBuf>,
    given: Vec<Address>,
}

/// The API servers; clones are the same list.
#[derive(Clone)]
pub struct Servers(Arc<Shared>);

impl Servers {
    /// The server of a kubeconfig and those that are listed in `file`. A file that cannot be read is logged and ignored: it is
    /// written again when the servers are learned.
    pub fn open(config: &kube::Config, file: Option<&Path>) -> Result<Self, ServersError> {
        let first = Address::of_url(&config.cluster_url)?;
        let mut list = ServerList::default();
        if let Some(path) = file.filter(|_| client::may_balance(config)) {
            list = ServerList::read(path).unwrap_or_else(|error| {
                let error = coracle_cli::causes::chain(&error);
                tracing::warn!(error, "list of servers ignored");
                ServerList::default()
            });
        }
        let mut configured = vec![first];
        configured.extend(list.given.iter().cloned());
        let (unfit, _) = watch::channel(Arc::default());
        Ok(Self(Arc::new(Shared {
            table: Mutex::new(Table::new(&configured, &list.learned)),
            unfit,
            changed: Notify::new(),
            moves: AtomicU64::new(0),
            nodes: AtomicUsize::new(0),
            dialer: ArcSwapOption::empty(),
            file: file.map(Path::to_owned),
            given: list.given,
        })))
    }

    /// A client whose connections go to a server of the list.
    pub fn client(&self, config: kube::Config) -> Result<kube::Client, ServersError> {
        let mut configured = vec![Address::of_url(&config.cluster_url)?];
        configured.extend(self.0.given.iter().cloned());
        if self.0.table.lock().configure(&configured) {
            self.0.changed.notify_one();
        }
        client::build(self, config)
    }

    /// The servers that pods should not be sent to because they are dead or not ready. Whoever uses it keeps at least one.
    pub fn unfit(&self) -> watch::Receiver<Arc<BTreeSet<SocketAddr>>> {
        self.0.unfit.subscribe()
    }

    /// How often the agent went to another server.
    pub fn moves(&self) -> u64 {
        self.0.moves.load(Ordering::Relaxed)
    }

    /// Servers in the order in which a connection tries them, and when it may begin.
    fn candidates(&self) -> (Vec<Address>, Option<Instant>) {
        let (table, now) = (self.0.table.lock(), Instant::now());
        (table.order(now), table.not_before.filter(|time| *time > now))
    }

    fn source(&self, server: &Address) -> Source {
        match self.0.table.lock().is_configured(server) {
            true => Source::Configured,
            false => Source::Learned,
        }
    }

    /// A connection to a server was opened; the token is cancelled when the server is found dead.
    fn connected(&self, server: &Address) -> CancellationToken {
        let (token, moved) = self.0.table.lock().connected(server);
        if moved {
            self.0.moves.fetch_add(1, Ordering::Relaxed);
            tracing::info!(%server, "connected to another API server");
        }
        token
    }

    /// A connection to a server could not be opened.
    fn failed(&self, server: &Address) {
        self.0.table.lock().failed(server, Instant::now());
    }

    /// What a monitor has found.
    fn report(&self, server: &Address, health: Health) {
        let (before, unfit) = {
            let mut table = self.0.table.lock();
            (table.report(server, health, Instant::now()), table.unfit())
        };
        match (before, health) {
            (Some(before), _) if before == health => {}
            (Some(Health::Unknown), Health::Live) | (None, _) => {}
            (_, Health::Live) => tracing::info!(%server, "API server answers again"),
            (_, health) => tracing::warn!(%server, ?health, "API server is not used"),
        }
        self.0.unfit.send_if_modified(|known| {
            let modified = **known != unfit;
            if modified {
                *known = Arc::new(unfit);
            }
            modified
        });
    }

    fn nodes(&self) -> usize {
        self.0.nodes.load(Ordering::Relaxed)
    }
}

/// How long agents may wait before they connect to another server: they spread over this time. It grows with the cluster, since
/// all agents of a server that died leave at once.
fn spread(nodes: usize) -> Duration {
    const PER_NODE: Duration = Duration::from_millis(2);
    const LONGEST: Duration = Duration::from_secs(10);
    PER_NODE.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).min(LONGEST)
}
