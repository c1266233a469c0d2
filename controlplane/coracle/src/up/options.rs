//! Options of `coracle up`, merged with those of the previous one.

use super::process::Process;
use super::published::PublishArg;
use super::registered::RegistryArg;
use super::state::{State, node_name};
use crate::cluster_args::{ClusterArgs, name_of};
use crate::output::Output;
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The server's address on the bridge.
pub const HUB: &str = "10.89.0.1";
/// The port the nodes reach the server on.
pub const PORT: u16 = 6443;
/// The bridge network without its first ten addresses and the broadcast address.
pub(super) const MOST_NODES: i64 = 244;

/// Default address of the API on this machine.
pub const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// Options of `coracle up`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "coracle up [OPTIONS]")]
pub struct UpArgs {
    /// Where state, keys, logs and images are.
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Number of nodes [default: as before, or 1].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=MOST_NODES))]
    pub(super) nodes: Option<u16>,
    /// Address of the API on this machine; port 0 selects a free port [default: as before, or 127.0.0.1:6443; with --name a free
    /// port].
    #[arg(long)]
    pub(super) bind: Option<SocketAddr>,
    /// Image archives to load into every node.
    #[arg(long)]
    pub(super) image: Vec<PathBuf>,
    /// Additional flag of the server; an empty one clears the previous flags [default: as before].
    #[arg(long = "server-flag", allow_hyphen_values = true)]
    pub(super) server_flags: Vec<String>,
    /// Additional flag of the agents; an empty one clears the previous flags [default: as before].
    #[arg(long = "agent-flag", allow_hyphen_values = true)]
    pub(super) agent_flags: Vec<String>,
    /// Outbound network access of nodes and pods through slirp4netns [default: as before, or true].
    #[arg(long, env = "CORACLE_OUTBOUND", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) outbound: Option<bool>,
    /// Port of this machine's loopback that leads to a TCP port of a Service: PORT:SERVICE:PORT or PORT:NAMESPACE/SERVICE:PORT;
    /// 0 selects a free port. A PORT alone leads to the same port of the first node, such as a NodePort. May be repeated;
    /// those of before stay, an empty one clears them.
    #[arg(long)]
    pub(super) publish: Vec<PublishArg>,
    /// Registry for images of the cluster, at a port of this machine's loopback: what is pushed to localhost:PORT/NAME, pods pull
    /// under that name. 5000 if no port is said, `off` for none [default: as before, or off].
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "5000")]
    pub(super) registry: Option<RegistryArg>,
    /// Also run three replicas of nginx at a port of this machine, wait until they answer, and show where the time went. The
    /// image is that of --image, of the release that this program is part of, or what the nodes have.
    #[arg(long)]
    pub(super) demo: bool,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Output,
}

impl UpArgs {
    /// Options that leave everything as it was.
    pub(super) fn as_before(cluster: ClusterArgs, image: Vec<PathBuf>, output: Output) -> Self {
        Self {
            cluster,
            nodes: None,
            bind: None,
            image,
            server_flags: Vec::new(),
            agent_flags: Vec::new(),
            outbound: None,
            publish: Vec::new(),
            registry: None,
            demo: false,
            output,
        }
    }

    /// Directory for state, keys, logs and images.
    pub(super) fn data_dir(&self) -> PathBuf {
        self.cluster.data_dir()
    }

    /// Address of the API on this machine. Only the cluster without a name has a port of its own.
    pub(super) fn address(&self) -> SocketAddr {
        let named = name_of(&self.data_dir()).is_some();
        self.bind.unwrap_or(if named { SocketAddr::new(BIND.ip(), 0) } else { BIND })
    }
}

/// Options that are not given have their previous values. Returns warnings about options that do not apply to processes that
/// are already running.
pub fn merge(args: &UpArgs, state: &mut State) -> (UpArgs, Vec<String>) {
    let mut args = args.clone();
    let mut warnings = Vec::new();
    let serves = state.server.as_ref().is_some_and(Process::alive);
    if serves {
        warnings.extend(merge_running_server(&mut args, state));
    }
    if !args.agent_flags.is_empty() {
        let said = without_empty(&args.agent_flags);
        let runs = state.nodes.iter().any(|node| node.agent.as_ref().is_some_and(Process::alive));
        if runs && said != state.agent_flags {
            warnings.push(
                "--agent-flag: agents that run keep the flags they have; those started now take the new ones"
                    .into(),
            );
        }
        state.agent_flags = said;
    }
    if !args.server_flags.is_empty() {
        state.server_flags = without_empty(&args.server_flags);
    }
    args.agent_flags.clone_from(&state.agent_flags);
    args.server_flags.clone_from(&state.server_flags);
    args.bind = args.bind.or(state.bind);
    warnings.extend(merge_nodes(&args, state, serves));
    (args, warnings)
}

/// Drops options that differ from those of the running server, with a warning for each.
fn merge_running_server(args: &mut UpArgs, state: &State) -> Vec<String> {
    const FIRST: &str = "`coracle down` first, to change it";
    let mut warnings = Vec::new();
    if let (Some(said), Some(has)) = (args.bind.take(), state.bind)
        && (said.ip() != has.ip() || ![0, has.port()].contains(&said.port()))
    {
        warnings.push(format!("--bind {said}: not done, the cluster runs and listens on {has}; {FIRST}"));
    }
    let said = std::mem::take(&mut args.server_flags);
    if !said.is_empty() && without_empty(&said) != state.server_flags {
        let has = match state.server_flags.join(" ") {
            none if none.is_empty() => "none".to_owned(),
            some => some,
        };
        warnings.push(format!("--server-flag: not done, the server runs with other flags ({has}); {FIRST}"));
    }
    warnings
}

/// Sets the number of nodes: as given, or as before. While the server runs it cannot decrease.
fn merge_nodes(args: &UpArgs, state: &mut State, serves: bool) -> Option<String> {
    // State of earlier versions has no count.
    state.node_count = state.node_count.max(state.nodes.len());
    let before = state.numbers().count().max(1);
    let said = args.nodes.map_or(before, usize::from);
    if serves && said < before {
        let there = state.nodes.len();
        return Some(format!(
            "--nodes {said}: not done, {there} nodes run; `coracle node rm` removes one, `coracle down` stops all"
        ));
    }
    let gone: Vec<String> = state.set_count(said).into_iter().map(node_name).collect();
    if gone.is_empty() {
        return None;
    }
    let gone = gone.join(" ");
    Some(format!("--nodes {said}: not started any more: {gone} (`kubectl delete node {gone}` forgets them)"))
}

/// An empty flag clears the previous flags.
fn without_empty(flags: &[String]) -> Vec<String> {
    flags.iter().filter(|flag| !flag.is_empty()).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::state::Node;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        up: UpArgs,
    }

    fn said(line: &str) -> UpArgs {
        Cli::try_parse_from(format!("up {line}").split_whitespace()).unwrap().up
    }

    /// A cluster of three nodes; its processes are this one, or nobody.
    fn cluster(running: bool) -> State {
        let ours = Process::of(std::process::id()).unwrap();
        let process = if running { ours } else { Process { started: 0, ..ours } };
        let node = |number| Node {
            name: format!("node-{number}"),
            holder: process.clone(),
            agent: Some(process.clone()),
            address: String::new(),
            address6: None,
            registry: None,
        };
        State {
            server: Some(process.clone()),
            nodes: (1..=3).map(node).collect(),
            node_count: 3,
            bind: Some("127.0.0.1:7443".parse().unwrap()),
            server_flags: vec!["--v=1".into()],
            agent_flags: vec!["--w=1".into()],
            ..State::default()
        }
    }

    #[test]
    fn what_is_not_said_is_as_before() {
        for mut state in [cluster(true), cluster(false), cluster(true).ended()] {
            let (args, warnings) = merge(&said(""), &mut state);
            assert_eq!((state.node_count, args.bind), (3, state.bind));
            assert_eq!((args.server_flags[0].as_str(), args.agent_flags[0].as_str()), ("--v=1", "--w=1"));
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let mut none = State::default();
        let (args, warnings) = merge(&said(""), &mut none);
        assert_eq!((none.node_count, args.bind, warnings.len()), (1, None, 0));
    }

    #[test]
    fn what_runs_is_not_changed_in_silence() {
        for (line, nodes, note) in [
            ("--nodes 1", 3, "--nodes 1: not done, 3 nodes run"),
            ("--nodes 5", 5, ""),
            ("--bind 127.0.0.1:0", 3, ""),
            ("--bind 127.0.0.1:7443", 3, ""),
            (
                "--bind 127.0.0.1:8443",
                3,
                "--bind 127.0.0.1:8443: not done, the cluster runs and listens on 127.0.0.1:7443",
            ),
            ("--server-flag=--v=1", 3, ""),
            ("--server-flag=--v=2", 3, "--server-flag: not done, the server runs with other flags (--v=1)"),
            ("--agent-flag=--w=2", 3, "--agent-flag: agents that run keep"),
        ] {
            let mut state = cluster(true);
            let (args, warnings) = merge(&said(line), &mut state);
            assert_eq!((state.node_count, args.bind), (nodes, state.bind), "{line}");
            assert_eq!(args.server_flags, ["--v=1"], "{line}");
            assert_eq!(warnings.len(), usize::from(!note.is_empty()), "{line}: {warnings:?}");
            assert!(warnings.concat().starts_with(note), "{line}: {warnings:?}");
        }
    }

    #[test]
    fn what_does_not_run_is_started_as_it_is_said() {
        let mut state = cluster(false);
        let flags = "--nodes 1 --bind 127.0.0.1:8443 --server-flag=--v=2 --agent-flag=";
        let (args, warnings) = merge(&said(flags), &mut state);
        assert_eq!((state.node_count, args.bind.unwrap().port()), (1, 8443));
        assert_eq!((args.server_flags, args.agent_flags), (vec!["--v=2".to_owned()], vec![]));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("not started any more: node-2 node-3"), "{warnings:?}");
    }

    #[test]
    fn several_clusters_have_ports_of_their_own() {
        assert_eq!(said("").address(), BIND);
        assert_eq!(said("--name a").address(), "127.0.0.1:0".parse().unwrap());
        assert_eq!(said("--name a --bind 127.0.0.1:7443").address().port(), 7443);
    }

    #[test]
    fn no_cluster_has_no_nodes() {
        for count in ["0", "245", "x", "-1"] {
            assert!(Cli::try_parse_from(["up", &format!("--nodes={count}")]).is_err(), "{count}");
        }
        assert_eq!(said("--nodes 244").nodes, Some(244));
    }
}
