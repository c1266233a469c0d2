//! `coracle down`: stops a cluster. Namespaces, links, rules and mounts disappear with the processes.

use super::process;
use super::state::State;
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// Options of `coracle down`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "coracle down [OPTIONS]")]
pub struct DownArgs {
    /// Data directory of the cluster.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle", value_parser = super::options::directory())]
    data_dir: PathBuf,
    /// Also remove the data directory.
    #[arg(long)]
    purge: bool,
}

/// Stops every process of the cluster. The options are kept for the next `up`, unless `purge` is set.
pub fn down(args: &DownArgs) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    let Some(state) = State::read(dir)? else {
        return nothing_there(dir, args.purge);
    };
    if !nix::unistd::geteuid().is_root() {
        bail!("the cluster of {} is root's: sudo coracle down", State::file(dir).display());
    }
    let started = state.started();
    end(&state);
    if args.purge {
        if let Some(spans) = coracle_timeline::shared_memory::path(dir) {
            let _ = std::fs::remove_file(spans);
        }
        std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    } else {
        state.ended().write(dir)?;
    }
    match (started, args.purge) {
        (true, false) => println!("cluster down"),
        (true, true) => println!("cluster down, state removed"),
        (false, false) => println!("the cluster in {} is down already", dir.display()),
        (false, true) => println!("the cluster in {} was down already, state removed", dir.display()),
    }
    Ok(())
}

/// Refuses to remove a directory that `up` did not create: it may belong to an installed server, or be a typo.
fn nothing_there(dir: &Path, purge: bool) -> anyhow::Result<()> {
    let holds_something = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if purge && holds_something {
        bail!("no cluster of `coracle up` in {} (it has no up.json): nothing was removed", dir.display());
    }
    if purge && dir.exists() {
        std::fs::remove_dir(dir).with_context(|| dir.display().to_string())?;
    }
    println!("no cluster in {}", dir.display());
    Ok(())
}

fn end(state: &State) {
    let agents = state.nodes.iter().filter_map(|node| node.agent.as_ref());
    for process in agents.chain(&state.server) {
        process::stop(process);
    }
    end_nodes(state);
    if let Some(hub) = &state.hub {
        process::end(hub);
    }
}

/// Ends the nodes with everything on them, and removes their control groups, which are named after the hub.
pub fn end_nodes(state: &State) {
    for node in &state.nodes {
        process::end(&node.holder);
        if let Some(hub) = &state.hub {
            process::remove_cgroups(&process::cgroup(hub, &node.name));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_up_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("mistyped");
        let args = DownArgs { data_dir: data_dir.clone(), purge: true };
        down(&args).unwrap();
        std::fs::create_dir(&data_dir).unwrap();
        std::fs::write(data_dir.join("letter"), "").unwrap();
        assert!(down(&args).unwrap_err().to_string().contains("nothing was removed"));
        down(&DownArgs { purge: false, ..args.clone() }).unwrap();
        std::fs::remove_file(data_dir.join("letter")).unwrap();
        down(&args).unwrap();
        assert!(!data_dir.exists());
    }
}
