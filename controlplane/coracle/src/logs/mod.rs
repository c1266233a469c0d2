//! `coracle logs`: the logs of the programs of a cluster on this machine, of files for `coracle up` and of the journal for
//! installed services.

// Reading a file, and what is added to it.
mod file;

use crate::cluster_args::{ClusterArgs, selector_of};
use crate::up::{State, publish_log, registry_log};
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The log of the shim of an installed node.
const KEEPER: &str = "/run/coracle/keeper.log";

/// Programs with a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Program {
    /// The control plane.
    #[default]
    Server,
    /// The node agent.
    Agent,
    /// The shim, which runs the containers of a node.
    Keeper,
    /// slirp4netns, the way out of a cluster of `coracle up`.
    Outbound,
    /// The forwarders of `coracle up --publish`.
    Publish,
    /// The registry of `coracle up --registry`.
    Registry,
}

/// Where units are: of `install`, and of the Debian package.
const UNITS: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];

/// Options of `coracle logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// Program whose log to print.
    #[arg(value_enum, default_value_t)]
    program: Program,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Node whose agent or shim is meant, of a cluster of `coracle up`.
    #[arg(long, default_value = "node-1")]
    node: String,
    /// Go on with what is added.
    #[arg(short, long)]
    follow: bool,
    /// Print only the last lines, so many.
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
}

/// Runs `coracle logs`.
pub fn run(args: &LogsArgs) -> anyhow::Result<()> {
    let dir = args.cluster.data_dir();
    if let Some(state) = State::read(&dir)? {
        for path in paths(args, &state, &dir)? {
            file::print(&path, args.tail, args.follow).with_context(|| path.display().to_string())?;
        }
        return Ok(());
    }
    let unit = match args.program {
        Program::Server => "coracle-server",
        Program::Agent => "coracle-agent",
        Program::Keeper => {
            let path = Path::new(KEEPER);
            return file::print(path, args.tail, args.follow).with_context(|| KEEPER.to_owned());
        }
        Program::Outbound | Program::Publish | Program::Registry => {
            bail!("only clusters of `coracle up` have such a log")
        }
    };
    if !UNITS.iter().any(|dir| Path::new(dir).join(format!("{unit}.service")).exists()) {
        bail!(
            "neither a cluster of `coracle up` in {} nor the service {unit} is on this machine",
            dir.display()
        );
    }
    let mut journal = Command::new("journalctl");
    journal.args(["--no-pager", "--unit", unit]).args(args.follow.then_some("--follow"));
    if let Some(lines) = args.tail {
        journal.arg(format!("--lines={lines}"));
    } else if args.follow {
        journal.arg("--lines=all");
    }
    Err(journal.exec()).context("journalctl")
}

/// The files of a cluster of `up`.
fn paths(args: &LogsArgs, state: &State, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let node = || {
        let known = state.nodes.iter().find(|node| node.name == args.node);
        known.with_context(|| match state.nodes.is_empty() {
            true => format!("the cluster is down: coracle up{}", selector_of(dir)),
            false => {
                let names: Vec<&str> = state.nodes.iter().map(|node| node.name.as_str()).collect();
                format!("there is no node {}: the nodes are {}", args.node, names.join(", "))
            }
        })
    };
    Ok(match args.program {
        Program::Server => vec![dir.join("server.log")],
        // It stays when the cluster is down.
        Program::Agent => {
            let path = dir.join(&args.node).join("agent.log");
            if !path.exists() {
                node()?;
            }
            vec![path]
        }
        Program::Keeper => vec![format!("/proc/{}/root{KEEPER}", node()?.holder.pid).into()],
        Program::Outbound => vec![dir.join("outbound.log")],
        Program::Registry if state.registry.is_none() => {
            bail!("the cluster has no registry: coracle up{} --registry", selector_of(dir))
        }
        Program::Registry => vec![registry_log(dir)],
        Program::Publish => {
            let paths: Vec<PathBuf> =
                state.published.iter().map(|each| publish_log(dir, each.port)).collect();
            if paths.is_empty() {
                bail!("no port is published: coracle up{} --publish 8080:SERVICE:80", selector_of(dir));
            }
            if args.follow && paths.len() > 1 {
                bail!(
                    "several ports are published, and one file can be followed: tail -F {}/publish-*.log",
                    dir.display()
                );
            }
            paths
        }
    })
}
