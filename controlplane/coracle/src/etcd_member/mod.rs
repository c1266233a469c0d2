//! A member of etcd that the server runs itself (`--datastore etcd`).
//!
//! ```text
//! start ─► lock, program, certificates ─► new cluster │ join (learner) │ again
//!       ─► process ─► answers ─► promoted ─► supervision: restart, members, certificates
//! ```
//!
//! The process ends with the server: asked to on a clean stop, killed by the kernel when the server is killed.

// Why there is no member.
mod error;
// The program `etcd` and its version.
mod program;
// Certificates of servers, peers and clients.
mod certificates;
// One server has a data directory.
mod lock;
// What is known of this server's member, in a file.
mod state;
// The command line.
mod command;
// etcd's log in the server's log.
mod log;
// Starting and ending the process.
mod process;
// Becoming a member of a cluster.
mod join;
// Whether there is room for its data.
mod space;
// Restarts, and what changes while it runs.
mod supervise;
// A member that nobody else reaches.
mod private;
// A new cluster from the data of one member.
mod reset;
// A new cluster that is filled before a server runs it.
mod seed;
// Which members can be removed.
pub mod removal;
#[cfg(test)]
mod tests;

pub use error::MemberError;
pub use program::Program;
pub use reset::reset;
pub use seed::{Seed, Seeded};
pub use state::{ClientFiles, STATE_FILE, remember_cluster, saved_options};

use certificates::Certificates;
use command::Launch;
use coracle_cli::private_files;
use coracle_store::EtcdOptions;
use coracle_store::etcd::Membership;
use lock::Lock;
use process::{Process, Spawner};
use state::State;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use supervise::{Health, Parts, Supervision};

/// Default port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// Default port for other members.
pub const PEER_PORT: u16 = 2380;
/// How often a member that does not answer yet is asked.
const POLL: Duration = Duration::from_millis(200);
/// How often the log says what is waited for.
const TELL: Duration = Duration::from_secs(15);

/// A member that is to run here.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The data directory of the server; the member's data is in `etcd` below it.
    pub data_dir: PathBuf,
    /// Where certificates are. `etcd-ca` is shared by all servers of a cluster, and made if it is missing.
    pub pki_dir: PathBuf,
    /// The address or name that other servers use for this one.
    pub advertise_host: String,
    /// Port for clients.
    pub client_port: u16,
    /// Port for other members.
    pub peer_port: u16,
    /// Lifetime of certificates.
    pub certificate_life: Duration,
    /// Client URLs of the cluster to join. Without, a server that has no data makes a new cluster.
    pub existing: Option<Vec<String>>,
}

impl MemberConfig {
    /// With the default ports, keys in `pki`, and no cluster to join.
    pub fn new(data_dir: &Path, advertise_host: &str) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            pki_dir: data_dir.join("pki"),
            advertise_host: advertise_host.to_owned(),
            client_port: CLIENT_PORT,
            peer_port: PEER_PORT,
            certificate_life: coracle_pki::USUAL_LIFE,
            existing: None,
        }
    }

    /// Where clients reach the member.
    pub fn client_url(&self) -> String {
        self.url(self.client_port)
    }

    /// Where other members reach it.
    pub fn peer_url(&self) -> String {
        self.url(self.peer_port)
    }

    fn url(&self, port: u16) -> String {
        format!("https://{}:{port}", in_url(&self.advertise_host))
    }
}

/// A host as it is in a URL.
fn in_url(host: &str) -> String {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]"),
        Err(_) => host.to_owned(),
    }
}

/// A member that runs. Dropping it kills the process.
pub struct Member {
    /// How the cluster is reached: this member first.
    pub options: EtcdOptions,
    /// The member's name.
    pub name: String,
    health: Health,
    supervision: Supervision,
    _lock: Lock,
}

impl Member {
    /// Whether the process runs, for health checks.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Stops etcd, and returns when it has ended.
    pub async fn stop(self) {
        self.supervision.stop().await;
    }
}

/// Starts the member of this server, and returns when it votes and the cluster has a leader. That can take as long as other
/// members are away: a caller that must end earlier drops the future, which kills the process.
pub async fn start(config: MemberConfig) -> Result<Member, MemberError> {
    let lock = Lock::take(&config.data_dir)?;
    let program = Program::find().await?;
    let dir = config.data_dir.join("etcd");
    private_files::directory(&dir).map_err(MemberError::file(&dir))?;
    command::sockets_are_free(&config).await?;
    let certificates = Certificates::ensure(&config)?;
    let mut state = State::load_or_new(&config)?;
    let plan = state.plan(&config)?;
    if !plan.has_data() {
        state::remove_unfinished(&dir)?;
    }
    if let Some(existing) = plan.existing() {
        let cluster = Membership::new(&state.options_of(&certificates, existing))?;
        join::add(&cluster, &config, &mut state).await?;
    } else if let Some(id) = state.id.filter(|_| plan.has_data())
        && let Some(others) = state.others(&certificates)?
        && supervise::is_removed(&others, id).await
    {
        return Err(MemberError::removed(&state.name, &config.data_dir));
    }
    state.save(&config.data_dir)?;
    let launch = Launch::new(&config, &state, &program, &certificates);
    let spawner = Spawner::new()?;
    let mut process = Process::spawn(&spawner, launch.command()).await?;
    let own = Membership::new(&state.options_of(&certificates, std::slice::from_ref(&state.client_url)))?;
    let id = answers(&mut process, &own, &state.client_url).await?;
    state.id = Some(id);
    state.save(&config.data_dir)?;
    if let Some(others) = state.others(&certificates)? {
        join::promote(&others, &own, (&config, &state), &mut process).await?;
    }
    join::update_address(&own, id, &state.peer_url).await?;
    let options = EtcdOptions { follow_members: true, ..state.options(&certificates) };
    tracing::info!(member = state.name, id = format!("{id:x}"), url = state.client_url, "etcd member runs");
    let (name, health) = (state.name.clone(), Health::default());
    let parts = Arc::new(Parts::new(config, state, launch, spawner, health.clone()));
    let supervision = Supervision::start(process, parts);
    Ok(Member { options, name, health, supervision, _lock: lock })
}

/// Waits until a process answers and knows a leader; returns its identifier.
async fn answers(process: &mut Process, own: &Membership, url: &str) -> Result<u64, MemberError> {
    let mut told = Instant::now();
    loop {
        let status = own.status(url).await;
        if let Some(ended) = process.ended().await {
            return Err(ended);
        }
        let id = u64::from_str_radix(&status.id, 16).unwrap_or(0);
        let Some(problem) = status.problem.or_else(|| (id == 0).then(String::new)) else {
            return Ok(id);
        };
        if told.elapsed() >= TELL {
            told = Instant::now();
            tracing::warn!(problem, "etcd does not answer yet: it waits for a majority of its members");
        }
        tokio::time::sleep(POLL).await;
    }
}
