//! `coracle down`: stops a cluster. Namespaces, links, rules and mounts disappear with the processes.

use super::process;
use super::state::State;
use crate::cluster_args::{ClusterArgs, context_of, name_of, selector_of};
use crate::kubeconfig;
use crate::output::Output;
use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use std::path::Path;

/// Options of `coracle down`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "coracle down [OPTIONS]")]
pub struct DownArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Also remove the data directory.
    #[arg(long)]
    purge: bool,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Stops every process of the cluster. The options are kept for the next `up`, unless `purge` is set.
pub fn down(args: &DownArgs) -> anyhow::Result<()> {
    let dir = &args.cluster.data_dir();
    let Some(state) = State::read(dir)? else {
        return nothing_there(dir, args);
    };
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the cluster of {} is root's: sudo coracle down{}",
            State::file(dir).display(),
            selector_of(dir)
        );
    }
    let started = state.started();
    end(&state);
    if args.purge {
        if let Some(spans) = coracle_timeline::shared_memory::path(dir) {
            let _ = std::fs::remove_file(spans);
        }
        std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
        // The last of several clusters takes their directory with it.
        if let Some(clusters) = dir.parent().filter(|_| name_of(dir).is_some()) {
            let _ = std::fs::remove_dir(clusters);
        }
    } else {
        state.ended().write(dir)?;
    }
    let said = match (started, args.purge) {
        (true, false) => "cluster down".to_owned(),
        (true, true) => "cluster down, state removed".to_owned(),
        (false, false) => format!("the cluster in {} is down already", dir.display()),
        (false, true) => format!("the cluster in {} was down already, state removed", dir.display()),
    };
    let answer = json!({"dataDir": dir, "stopped": started, "purged": args.purge});
    args.output.print(&answer, || format!("{said}\n"))?;
    if args.purge {
        kubeconfig::of_user::remove(&context_of(dir))?;
    }
    Ok(())
}

/// Refuses to remove a directory that `up` did not create: it may belong to an installed server, or be a typo.
fn nothing_there(dir: &Path, args: &DownArgs) -> anyhow::Result<()> {
    let purge = args.purge;
    let holds_something = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if purge && holds_something {
        bail!("no cluster of `coracle up` in {} (it has no up.json): nothing was removed", dir.display());
    }
    if purge && dir.exists() {
        std::fs::remove_dir(dir).with_context(|| dir.display().to_string())?;
    }
    let answer = json!({"dataDir": dir, "stopped": false, "purged": false});
    Ok(args.output.print(&answer, || format!("no cluster in {}\n", dir.display()))?)
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
        let args = DownArgs { cluster: ClusterArgs::of(&data_dir), purge: true, output: Output::Text };
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
