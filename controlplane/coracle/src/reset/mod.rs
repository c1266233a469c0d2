//! `coracle reset`: ends what an installed server and node run on this machine, and removes their state. Programs, units and
//! configuration stay; `install uninstall` removes those.

// What is there.
mod plan;

use crate::cluster_args::directory;
use crate::output::Output;
use crate::up::program_beside;
use anyhow::{Context as _, bail};
use clap::Args;
use plan::{Places, Plan};
use serde_json::json;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where an installed node has its state, which `scripts/end-pods` knows.
const INSTALLED: &str = "/var/lib/coracle";
/// The units of `install` and of packages, in the order in which they are stopped.
const UNITS: [&str; 2] = ["coracle-agent", "coracle-server"];
const UNIT_DIRECTORIES: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];
/// Ends pods and what held them, as `install uninstall` does.
const END_PODS: &str = include_str!("../../../../scripts/end-pods");

/// Options of `coracle reset`.
#[derive(Debug, Clone, Args)]
pub struct ResetArgs {
    /// Data directory of the server and the node.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = INSTALLED, value_parser = directory())]
    data_dir: PathBuf,
    /// Do not ask; required without a terminal.
    #[arg(long)]
    yes: bool,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs `coracle reset`.
pub fn run(args: &ResetArgs) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    if !nix::unistd::geteuid().is_root() {
        bail!("coracle reset stops services and removes their state, which needs root");
    }
    let places = Places {
        data_dir: dir.clone(),
        pod_logs: "/var/log/pods".into(),
        network: "/etc/cni/net.d/10-coracle.conflist".into(),
    };
    let Some(found) = plan::read(&places)? else {
        let answer = json!({"dataDir": dir, "stopped": [], "removed": []});
        let text = || format!("there is nothing to reset in {}\n", dir.display());
        return Ok(args.output.print(&answer, text)?);
    };
    if found.node && dir != Path::new(INSTALLED) {
        bail!("{} has state of a node, whose pods can be ended only in {INSTALLED}", dir.display());
    }
    confirm(&found, args.yes)?;
    let stopped = stop_units()?;
    check_processes()?;
    if found.node {
        end_pods()?;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    plan::check_mounts(dir, &mounts)?;
    if let Some(spans) = coracle_timeline::shared_memory::path(dir) {
        let _ = std::fs::remove_file(spans);
    }
    found.remove()?;
    let answer = json!({"dataDir": dir, "stopped": stopped, "removed": found.paths});
    let text = || {
        let lines = stopped.iter().map(|unit| format!("stopped and disabled {unit}\n"));
        lines.chain(found.paths.iter().map(|path| format!("removed {}\n", path.display()))).collect()
    };
    Ok(args.output.print(&answer, text)?)
}

/// Asks whether to go on, and says what is removed.
fn confirm(found: &Plan, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let paths: Vec<String> = found.paths.iter().map(|path| path.display().to_string()).collect();
    let what = match (found.server, found.node) {
        (true, true) => "the server and the node of this machine",
        (true, false) => "the server of this machine",
        _ => "the node of this machine, with its pods",
    };
    let question = format!("end {what}, and remove {}", paths.join(", "));
    if !std::io::stdin().is_terminal() {
        bail!("without a terminal it takes --yes to {question}");
    }
    eprint!("{question}? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("read the answer")?;
    if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        bail!("nothing was changed");
    }
    Ok(())
}

/// Stops the services and keeps them from starting again; returns those that there are.
fn stop_units() -> anyhow::Result<Vec<&'static str>> {
    let mut stopped = Vec::new();
    if !Path::new("/run/systemd/system").is_dir() {
        return Ok(stopped);
    }
    for unit in UNITS {
        let file = format!("{unit}.service");
        if !UNIT_DIRECTORIES.iter().any(|dir| Path::new(dir).join(&file).exists()) {
            continue;
        }
        let mut systemctl = Command::new("systemctl");
        let ended = systemctl.args(["disable", "--quiet", "--now", unit]).status().context("systemctl")?;
        if !ended.success() {
            bail!("{unit} could not be stopped: nothing was removed");
        }
        stopped.push(unit);
    }
    Ok(stopped)
}

/// Refuses while a server or an agent runs that is not a service. Those of `coracle up` are in networks of their own.
fn check_processes() -> anyhow::Result<()> {
    let network = std::fs::read_link("/proc/self/ns/net").context("/proc/self/ns/net")?;
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let process = entry.path();
        let is_here = || std::fs::read_link(process.join("ns/net")).is_ok_and(|other| other == network);
        let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
        if let Some(program) = serving(&words)
            && is_here()
        {
            bail!("process {} is `{program}`: stop it first", entry.file_name().to_string_lossy());
        }
    }
    Ok(())
}

/// The server or agent that a command line, separated by zeros, belongs to.
fn serving(words: &[u8]) -> Option<&'static str> {
    let mut words = words.split(|byte| *byte == 0);
    let program = words.next()?.rsplit(|byte| *byte == b'/').next()?;
    match (program, words.next()?) {
        (b"coracle", b"server") => Some("coracle server"),
        (b"coracle-agent", b"run") => Some("coracle-agent run"),
        _ => None,
    }
}

fn end_pods() -> anyhow::Result<()> {
    let keeper = program_beside("coracle-keeper")?;
    let mut bash = Command::new("bash");
    bash.args(["-c", END_PODS, "end-pods"]).arg(keeper);
    // Standard output is for the answer.
    let ended = bash.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("bash")?;
    if !ended.success() {
        bail!("the pods of this machine could not be ended: nothing was removed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_agents_are_told_by_their_command_lines() {
        for (words, program) in [
            ("/usr/local/bin/coracle\0server\0--bind\0x\0", Some("coracle server")),
            ("coracle-agent\0run\0", Some("coracle-agent run")),
            ("coracle\0reset\0", None),
            ("coracle\0", None),
            ("sh\0-c\0coracle server\0", None),
            ("", None),
        ] {
            assert_eq!(serving(words.as_bytes()), program, "{words:?}");
        }
    }

    #[test]
    fn without_a_terminal_it_takes_yes() {
        let found = Plan { server: true, node: false, paths: vec!["/data".into()] };
        assert!(confirm(&found, true).is_ok());
        // Tests that are run by hand have a terminal, where somebody would be asked.
        if !std::io::stdin().is_terminal() {
            let error = confirm(&found, false).map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.contains("--yes") && error.ends_with("remove /data")));
        }
    }
}
