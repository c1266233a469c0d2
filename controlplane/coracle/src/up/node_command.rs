//! `coracle node`: adds nodes to a cluster of `coracle up` that runs, and removes them.

use super::drain::{self, Drain};
use super::options::{self, MOST_NODES, UpArgs};
use super::process::{self, Process};
use super::publish;
use super::state::{State, node_name};
use super::{network, node};
use crate::cluster_args::{ClusterArgs, selector_of};
use crate::output::Output;
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use coracle_apiserver::https_client::HttpsClient;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `coracle node`.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum NodeCommand {
    /// Add nodes to a cluster that runs, and wait until they are ready.
    Add(AddArgs),
    /// Remove nodes: cordon, evict their pods, delete the Node, stop the agent, remove its data.
    Rm(RmArgs),
}

#[derive(Debug, Clone, Args)]
struct AddArgs {
    /// Number of nodes to add.
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..MOST_NODES))]
    count: u16,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Image archives to load into the nodes [default: those of the last `coracle up`].
    #[arg(long)]
    image: Vec<PathBuf>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Clone, Args)]
struct RmArgs {
    /// Names of the nodes.
    #[arg(required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Also delete pods that nothing creates again.
    #[arg(long)]
    force: bool,
    /// Seconds that the pods of a node may take to be evicted and to end; disruption budgets are honoured.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs `coracle node`.
pub fn run(args: &NodeArgs) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("coracle node makes and removes namespaces and mounts, which needs root");
    }
    match &args.command {
        NodeCommand::Add(args) => add(args),
        NodeCommand::Rm(args) => remove(args),
    }
}

/// The state of a cluster that runs.
fn running(dir: &Path) -> anyhow::Result<State> {
    let Some(state) = State::read(dir)? else {
        bail!("no cluster of `coracle up` in {}", dir.display());
    };
    let runs = |process: &Option<Process>| process.as_ref().is_some_and(Process::alive);
    if !runs(&state.server) || !runs(&state.hub) {
        bail!("the cluster in {} is down: `coracle up{}` starts it", dir.display(), selector_of(dir));
    }
    Ok(state)
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let dir = &args.cluster.data_dir();
    let mut state = running(dir)?;
    let count = usize::from(args.count);
    if state.numbers().count() + count > MOST_NODES as usize {
        bail!(
            "a cluster has at most {MOST_NODES} nodes, and this one has {} already",
            state.numbers().count()
        );
    }
    // Archives that have gone since are not loaded; those that are named must be there.
    let images = match args.image.is_empty() {
        true => state.images.iter().filter(|archive| archive.is_file()).cloned().collect(),
        false => args.image.clone(),
    };
    if let Some(missing) = images.iter().find(|archive| !archive.is_file()) {
        bail!("--image {}: there is no such file", missing.display());
    }
    let as_before = UpArgs::as_before(args.cluster.clone(), images, args.output);
    let (up, _) = options::merge(&as_before, &mut state);
    let mut added = Vec::new();
    for _ in 0..count {
        let number = state.add_number();
        if let Err(error) = node::ensure(&up, &mut state, number) {
            let name = node_name(number);
            discard(&mut state, dir, number)?;
            // It may have been registered before it failed.
            let forgotten = block_on(async { drain::delete_node(&client(dir)?, &name).await });
            forgotten.with_context(|| format!("the Node {name} is left over"))?;
            bail!("{name} could not be added, and was removed again: {error:#}");
        }
        state.write(dir)?;
        added.push(node_name(number));
    }
    let answer = json!({"dataDir": dir, "added": added, "nodes": state.names()});
    let text = || format!("added: {}; the cluster has {} nodes\n", added.join(" "), state.names().len());
    Ok(args.output.print(&answer, text)?)
}

fn remove(args: &RmArgs) -> anyhow::Result<()> {
    let dir = &args.cluster.data_dir();
    let mut state = running(dir)?;
    let mut numbers = Vec::new();
    for name in &args.nodes {
        let Some(number) = state.numbers().find(|number| node_name(*number) == *name) else {
            bail!(
                "there is no node {name} in the cluster of {}; it has {}",
                dir.display(),
                state.names().join(", ")
            );
        };
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    if numbers.len() == state.numbers().count() {
        let down = format!("coracle down{}", selector_of(dir));
        bail!("a cluster has at least one node: `{down}` stops it");
    }
    let drained = block_on(async {
        let remote = client(dir)?;
        drain::check(&remote).await?;
        let mut evicted = 0;
        for number in &numbers {
            let removed = remove_one(args, &remote, &mut state, *number).await;
            evicted += removed.map_err(|error| anyhow!("{}: {error:#}", node_name(*number)))?;
        }
        Ok(evicted)
    });
    // Ports that were published in the network of such a node, also if another one could not be removed.
    let reserved = publish::reserve(&[], &mut state, dir)?;
    publish::start(reserved, &mut state, dir)?;
    state.write(dir)?;
    let evicted = drained?;
    let removed: Vec<String> = numbers.into_iter().map(node_name).collect();
    let answer = json!({"dataDir": dir, "removed": removed, "evicted": evicted, "nodes": state.names()});
    let text = || {
        let left = state.names().len();
        format!("removed: {}; {evicted} pods evicted; the cluster has {left} nodes\n", removed.join(" "))
    };
    Ok(args.output.print(&answer, text)?)
}

/// Removes a node; returns how many pods were evicted. If it cannot be drained, it stays as it was.
async fn remove_one(
    args: &RmArgs,
    remote: &HttpsClient,
    state: &mut State,
    number: usize,
) -> anyhow::Result<usize> {
    let (name, dir) = (node_name(number), args.cluster.data_dir());
    let agent = state.nodes.iter().find(|node| node.name == name).and_then(|node| node.agent.clone());
    let drain = Drain {
        force: args.force,
        timeout: Duration::from_secs(args.timeout),
        await_end: agent.as_ref().is_some_and(Process::alive),
    };
    let evicted = match drain::set_unschedulable(remote, &name, true).await? {
        // It never registered.
        None => 0,
        Some(cordoned) => match drain.run(remote, &name).await {
            Ok(evicted) => evicted,
            Err(error) => {
                if cordoned {
                    drain::set_unschedulable(remote, &name, false).await?;
                }
                return Err(error.into());
            }
        },
    };
    // First: an agent that runs would register its Node again.
    if let Some(agent) = &agent {
        process::stop(agent);
    }
    drain::delete_node(remote, &name).await?;
    discard(state, &dir, number)?;
    Ok(evicted)
}

/// Ends a node with everything on it, and forgets it.
fn discard(state: &mut State, dir: &Path, number: usize) -> anyhow::Result<()> {
    let name = node_name(number);
    for node in state.nodes.iter().filter(|node| node.name == name) {
        if let Some(agent) = &node.agent {
            process::stop(agent);
        }
        process::end(&node.holder);
        if let Some(hub) = &state.hub {
            process::remove_cgroups(&process::cgroup(hub, &name));
        }
    }
    // The kernel takes the node's end of the link away in its own time.
    if let Some(hub) = state.hub.as_ref().filter(|hub| hub.alive()) {
        network::detach(hub, number)?;
    }
    // Also when it fails, the node does not run any more.
    let data = dir.join(&name);
    let removed = std::fs::remove_dir_all(&data);
    state.nodes.retain(|node| node.name != name);
    state.remove_number(number);
    state.write(dir)?;
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| data.display().to_string())
        }
        _ => Ok(()),
    }
}

/// A client with the rights of the administrator.
fn client(dir: &Path) -> anyhow::Result<HttpsClient> {
    Ok(HttpsClient::from_kubeconfig(&dir.join("admin.kubeconfig"))?)
}

/// Runs requests to the API server.
fn block_on<T>(requests: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(requests)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        node: NodeArgs,
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for line in ["", "add 0", "add 244", "add x", "rm", "rm --timeout 0 node-1", "rm --timeout x node-1"]
        {
            let words = std::iter::once("node").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
        for line in ["add", "add 3 -o json", "rm node-1 node-2 --force"] {
            let words = std::iter::once("node").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_cluster_that_is_not_there_or_does_not_run_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = running(dir.path()).err().unwrap().to_string();
        assert_eq!(error, format!("no cluster of `coracle up` in {}", dir.path().display()));
        let ours = Process::of(std::process::id()).unwrap();
        let ended = Process { started: 0, ..ours.clone() };
        for server in [None, Some(ended)] {
            State { server, hub: Some(ours.clone()), node_count: 1, ..State::default() }
                .write(dir.path())
                .unwrap();
            let error = running(dir.path()).err().unwrap().to_string();
            assert!(error.contains("is down: `coracle up --data-dir "), "{error}");
        }
        State { server: Some(ours.clone()), hub: Some(ours), ..State::default() }.write(dir.path()).unwrap();
        assert!(running(dir.path()).is_ok());
    }
}
