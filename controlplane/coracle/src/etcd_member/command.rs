//! The command line of etcd.

use super::certificates::Certificates;
use super::program::remove_settings;
use super::state::{Origin, State};
use super::{MemberConfig, MemberError, Program};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The largest database; etcd recommends no more.
const QUOTA: u64 = 8 << 30;
/// Objects have at most 1.5 MiB, and encryption adds to that.
const MAX_REQUEST: u64 = 4 << 20;
/// Entries that are kept in memory for members that are behind.
const SNAPSHOT_COUNT: u64 = 10_000;

/// How often a leader tells the others that it is there.
const HEARTBEAT_MS: u64 = 50;
/// After how long without a leader, at the earliest, a member stands for election; at the latest it is twice that. Two members
/// that stand at the same moment try once more, and clients wait no longer than three seconds then, too. Disks that stop for
/// longer than this cost an election.
const ELECTION_MS: u64 = 750;

/// How long the sockets of a process that was killed may be held.
const SOCKETS: Duration = Duration::from_secs(5);

/// How a member is launched, whenever it is.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    program: PathBuf,
    args: Vec<String>,
}

impl Launch {
    pub(super) fn new(
        config: &MemberConfig,
        state: &State,
        program: &Program,
        certificates: &Certificates,
    ) -> Self {
        let host = &config.advertise_host;
        let (clients, peers) =
            (listen(host, config.client_port, true), listen(host, config.peer_port, false));
        let listen = [("listen-client-urls", clients), ("listen-peer-urls", peers)];
        Self::listening(&config.data_dir.join("etcd"), &listen, state, program, certificates)
    }

    /// With other sockets than those that are advertised.
    pub(super) fn listening(
        dir: &std::path::Path,
        listen: &[(&str, String); 2],
        state: &State,
        program: &Program,
        certificates: &Certificates,
    ) -> Self {
        let origin = match state.origin {
            Origin::New => "new",
            Origin::Existing => "existing",
        };
        let path = |path: PathBuf| path.display().to_string();
        let ca = || path(certificates.authority());
        let mut flags: Vec<(&str, String)> = listen.to_vec();
        flags.extend([
            ("name", state.name.clone()),
            ("data-dir", dir.display().to_string()),
            ("advertise-client-urls", state.client_url.clone()),
            ("initial-advertise-peer-urls", state.initial_peer_url().to_owned()),
            ("initial-cluster", state.initial_cluster.join(",")),
            ("initial-cluster-token", state.token.clone()),
            ("initial-cluster-state", origin.to_owned()),
            ("cert-file", path(certificates.certificate("server"))),
            ("key-file", path(certificates.key("server"))),
            ("trusted-ca-file", ca()),
            ("client-cert-auth", "true".to_owned()),
            ("peer-cert-file", path(certificates.certificate("peer"))),
            ("peer-key-file", path(certificates.key("peer"))),
            ("peer-trusted-ca-file", ca()),
            ("peer-client-cert-auth", "true".to_owned()),
            ("quota-backend-bytes", QUOTA.to_string()),
            ("max-request-bytes", MAX_REQUEST.to_string()),
            ("snapshot-count", SNAPSHOT_COUNT.to_string()),
            // The server compacts.
            ("auto-compaction-retention", "0".to_owned()),
            ("heartbeat-interval", HEARTBEAT_MS.to_string()),
            ("election-timeout", ELECTION_MS.to_string()),
            // A member that was away does not disturb the leader.
            ("pre-vote", "true".to_owned()),
            // Nobody uses it, and it would need a client certificate for itself.
            ("enable-grpc-gateway", "false".to_owned()),
            ("logger", "zap".to_owned()),
            ("log-outputs", "stderr".to_owned()),
        ]);
        let mut args: Vec<String> =
            flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
        args.extend(program.skip_san.map(|flag| format!("{flag}=true")));
        Self { program: program.path.clone(), args }
    }

    /// The same, with one more argument.
    pub(super) fn with(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        remove_settings(&mut command);
        // Only the server tells the service manager how it is.
        for variable in coracle_cli::service::VARIABLES {
            command.env_remove(variable);
        }
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

impl State {
    /// The peer URL in the initial cluster: etcd compares both, and looks at neither once it has data.
    fn initial_peer_url(&self) -> &str {
        let own =
            |entry: &'_ String| entry.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('='));
        let entry = self.initial_cluster.iter().find(|entry| own(entry));
        entry.map_or(&self.peer_url, |entry| &entry[self.name.len() + 1..])
    }
}

/// Where a member listens: on its address, for clients also on 127.0.0.1, and everywhere if it has a name instead. Several
/// members with loopback addresses are told apart by them.
fn sockets(host: &str, port: u16, local: bool) -> Vec<SocketAddr> {
    let Ok(ip) = host.parse::<IpAddr>() else { return vec![SocketAddr::from(([0, 0, 0, 0], port))] };
    let also = (local && !ip.is_loopback()).then(|| SocketAddr::from(([127, 0, 0, 1], port)));
    std::iter::once(SocketAddr::new(ip, port)).chain(also).collect()
}

fn listen(host: &str, port: u16, local: bool) -> String {
    let urls = sockets(host, port, local).into_iter().map(|socket| format!("https://{socket}"));
    urls.collect::<Vec<_>>().join(",")
}

/// Waits until nobody listens where the member will: the etcd of a server that was killed may take a moment to end. Another
/// etcd there would be taken for this one.
pub(super) async fn sockets_are_free(config: &MemberConfig) -> Result<(), MemberError> {
    let host = &config.advertise_host;
    let both = [sockets(host, config.client_port, true), sockets(host, config.peer_port, false)].concat();
    let begun = Instant::now();
    for address in both {
        while let Err(source) = TcpListener::bind(address) {
            if begun.elapsed() >= SOCKETS {
                return Err(MemberError::Socket { address, source });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_listen_where_they_are_reached_and_on_loopback() {
        for (host, local, want) in [
            ("10.0.0.1", true, "https://10.0.0.1:1,https://127.0.0.1:1"),
            ("10.0.0.1", false, "https://10.0.0.1:1"),
            ("127.0.0.2", true, "https://127.0.0.2:1"),
            ("fd00::1", false, "https://[fd00::1]:1"),
            ("server-1", true, "https://0.0.0.0:1"),
        ] {
            assert_eq!(listen(host, 1, local), want);
        }
    }
}
