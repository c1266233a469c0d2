//! `coracle image load`: images of this machine, into all nodes of a cluster of `coracle up`, or into the node that is installed
//! here.

// Archives, from files and from other engines.
mod archive;

use crate::cluster_args::ClusterArgs;
use crate::output::Output;
use crate::up::{State, node_name, program_beside};
use anyhow::{Context as _, bail};
use archive::{Archive, Engine};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The image store of a node that is installed on this machine.
const INSTALLED: &str = "/var/lib/coracle/engine/images";

/// Options of `coracle image`.
#[derive(Debug, Clone, Args)]
pub struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum ImageCommand {
    /// Load images into every node of this machine: archives (docker save, OCI), or images of docker or podman by name.
    Load(LoadArgs),
}

#[derive(Debug, Clone, Args)]
struct LoadArgs {
    /// Archives, and names of images.
    #[arg(required = true, value_name = "FILE|NAME")]
    images: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Engine that has the images that are named; the first that is installed and has them by default.
    #[arg(long, value_enum)]
    from: Option<Engine>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What was loaded.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Loaded {
    image: String,
    id: String,
    nodes: Vec<String>,
}

/// Runs `coracle image`.
pub fn run(args: &ImageArgs) -> anyhow::Result<()> {
    let ImageCommand::Load(args) = &args.command;
    if !nix::unistd::geteuid().is_root() {
        bail!("coracle image load writes into the image stores of nodes, which needs root");
    }
    let dir = args.cluster.data_dir();
    let stores = stores(State::read(&dir)?.as_ref(), &dir)?;
    // All are there before the first one is loaded.
    let scratch = stores[0].1.parent().unwrap_or(Path::new("/var/tmp"));
    std::fs::create_dir_all(scratch).with_context(|| scratch.display().to_string())?;
    let archives: anyhow::Result<Vec<Archive>> =
        args.images.iter().map(|image| Archive::open(image, args.from, scratch)).collect();
    let (archives, agent) = (archives?, program_beside("coracle-agent")?);
    let mut loaded = Vec::new();
    for (node, store) in &stores {
        for Imported { image, id } in import(&agent, store, &archives).with_context(|| node.clone())? {
            record(&mut loaded, image, id, node);
        }
    }
    args.output.print(&loaded, || text(&loaded))?;
    Ok(())
}

fn record(loaded: &mut Vec<Loaded>, image: String, id: String, node: &str) {
    match loaded.iter_mut().find(|known| known.image == image && known.id == id) {
        Some(known) => known.nodes.push(node.to_owned()),
        None => loaded.push(Loaded { image, id, nodes: vec![node.to_owned()] }),
    }
}

fn text(loaded: &[Loaded]) -> String {
    loaded.iter().map(|each| format!("{} is on {}\n", each.image, each.nodes.join(", "))).collect()
}

/// Nodes and their image stores: those of a cluster of `up`, else the one that is installed.
fn stores(state: Option<&State>, dir: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    if let Some(state) = state {
        let mut names = state.names();
        if names.is_empty() {
            names.push(node_name(1));
        }
        return Ok(names
            .into_iter()
            .map(|name| (name.clone(), dir.join(name).join("engine/images")))
            .collect());
    }
    if Path::new(INSTALLED).exists() {
        return Ok(vec![("the node of this machine".to_owned(), INSTALLED.into())]);
    }
    bail!(
        "there is no node on this machine: neither a cluster of `coracle up` in {} nor {INSTALLED}",
        dir.display()
    )
}

/// An image that the agent imported.
#[derive(Debug, Deserialize)]
struct Imported {
    image: String,
    id: String,
}

/// What was imported into a store.
fn import(agent: &Path, store: &Path, archives: &[Archive]) -> anyhow::Result<Vec<Imported>> {
    let mut command = Command::new(agent);
    command.args(["image", "--image-dir"]).arg(store).args(["--output", "json", "import"]);
    command.args(archives.iter().map(Archive::path));
    let output = command.output().with_context(|| agent.display().to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.trim().trim_start_matches("Error: "));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("the answer of {}", agent.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_node_of_the_cluster_gets_the_image() {
        let state = State { node_count: 2, ..State::default() };
        let stores = stores(Some(&state), Path::new("/d")).unwrap();
        let paths: Vec<&Path> = stores.iter().map(|(_, path)| path.as_path()).collect();
        assert_eq!(paths, [Path::new("/d/node-1/engine/images"), Path::new("/d/node-2/engine/images")]);
        let mut loaded = Vec::new();
        for (node, _) in &stores {
            record(&mut loaded, "app:1".into(), "sha256:1".into(), node);
        }
        assert_eq!(text(&loaded), "app:1 is on node-1, node-2\n");
    }
}
