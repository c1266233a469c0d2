//! A member that nobody else reaches, for as long as something is done to its data: neither servers nor other members are to see
//! it before that is finished.

use super::certificates::Certificates;
use super::command::Launch;
use super::process::{Process, Spawner};
use super::state::State;
use super::{MemberError, Program, answers};
use coracle_store::EtcdOptions;
use coracle_store::etcd::Membership;
use std::net::TcpListener;
use std::path::Path;

/// A running member. Dropping it kills the process.
pub(super) struct Private {
    /// Its identifier.
    pub(super) id: u64,
    /// The cluster, asked through this member.
    pub(super) own: Membership,
    /// How it is reached.
    pub(super) options: EtcdOptions,
    process: Process,
    _spawner: Spawner,
}

impl Private {
    /// Starts a member with the data in `dir` and with more flags. Returns when it answers and has a leader.
    pub(super) async fn start(
        dir: &Path,
        state: &State,
        certificates: &Certificates,
        flags: &[&str],
    ) -> Result<Self, MemberError> {
        let program = Program::find().await?;
        let (clients, peers) = (free_url()?, free_url()?);
        let listen = [("listen-client-urls", clients.clone()), ("listen-peer-urls", peers)];
        let launch = Launch::listening(dir, &listen, state, &program, certificates);
        let launch = flags.iter().fold(launch, |launch, flag| launch.with(flag));
        let spawner = Spawner::new()?;
        let mut process = Process::spawn(&spawner, launch.command()).await?;
        let options = state.options_of(certificates, std::slice::from_ref(&clients));
        let own = Membership::new(&options)?;
        let id = answers(&mut process, &own, &clients).await?;
        Ok(Self { id, own, options, process, _spawner: spawner })
    }

    /// Stops it, and returns when it has ended.
    pub(super) async fn stop(self) {
        self.process.stop().await;
    }
}

/// A URL on loopback that nobody listens on.
fn free_url() -> Result<String, MemberError> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    Ok(format!("https://{}", address.map_err(MemberError::file(Path::new("127.0.0.1:0")))?))
}
