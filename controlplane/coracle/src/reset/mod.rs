//! `coracle reset`: ends what an installed server and node run on this machine, and removes their state. Programs, units and
//! configuration stay; `install uninstall` removes those.

// What is there.
mod plan;

use crate::cluster_args::{directory, is_named_in_environment};
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
/// Where units are: of `install`, and of packages.
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
    // A slash at the end would follow a link.
    let dir = &args.data_dir.components().collect::<PathBuf>();
    if !nix::unistd::geteuid().is_root() {
        bail!("coracle reset stops services and removes their state, which needs root");
    }
    if is_named_in_environment() {
        bail!(
            "CORACLE_NAME names a cluster of `coracle up`, which `coracle down --purge` removes; unset it to reset {}",
            dir.display()
        );
    }
    let places = Places {
        data_dir: dir.clone(),
        pod_logs: "/var/log/pods".into(),
        log_links: "/var/log/containers".into(),
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
    let roles = roles(&found);
    // A service has its state in another directory only if its configuration says so.
    let stopped = if dir == Path::new(INSTALLED) { stop_units(&roles)? } else { Vec::new() };
    check_processes(&roles)?;
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

/// What runs on the state: a unit, and a program with its command.
struct Role {
    unit: &'static str,
    program: &'static str,
    command: &'static str,
}

/// The roles whose state was found, in the order in which they are stopped.
fn roles(found: &Plan) -> Vec<Role> {
    let agent = Role { unit: "coracle-agent", program: "coracle-agent", command: "run" };
    let server = Role { unit: "coracle-server", program: "coracle", command: "server" };
    let is_there = [(found.node, agent), (found.server, server)].into_iter();
    is_there.filter_map(|(is_there, role)| is_there.then_some(role)).collect()
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
fn stop_units(roles: &[Role]) -> anyhow::Result<Vec<&'static str>> {
    let mut stopped = Vec::new();
    if !Path::new("/run/systemd/system").is_dir() {
        return Ok(stopped);
    }
    for unit in roles.iter().map(|role| role.unit) {
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

/// Refuses while a server or an agent runs that was not stopped. Those of `coracle up` are in networks of their own.
fn check_processes(roles: &[Role]) -> anyhow::Result<()> {
    let network = std::fs::read_link("/proc/self/ns/net").context("/proc/self/ns/net")?;
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let process = entry.path();
        let is_here = || std::fs::read_link(process.join("ns/net")).is_ok_and(|other| other == network);
        let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
        if let Some(Role { program, command, .. }) = roles.iter().find(|role| role.is(&words))
            && is_here()
        {
            let pid = entry.file_name();
            bail!("process {} is `{program} {command}`: stop it first", pid.to_string_lossy());
        }
    }
    Ok(())
}

impl Role {
    /// Whether a command line, whose words end with zeros, is of this role.
    fn is(&self, line: &[u8]) -> bool {
        let mut words = line.split(|byte| *byte == 0);
        let (path, command) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let program = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        program == self.program.as_bytes() && command == self.command.as_bytes()
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
        let all = roles(&Plan { server: true, node: true, paths: Vec::new() });
        for (line, unit) in [
            ("/usr/local/bin/coracle\0server\0--bind\0x\0", Some("coracle-server")),
            ("coracle-agent\0run\0", Some("coracle-agent")),
            ("coracle\0reset\0", None),
            ("coracle\0", None),
            ("sh\0-c\0coracle server\0", None),
            ("", None),
        ] {
            let found = all.iter().find(|role| role.is(line.as_bytes()));
            assert_eq!(found.map(|role| role.unit), unit, "{line:?}");
        }
        let server = roles(&Plan { server: true, node: false, paths: Vec::new() });
        assert_eq!(server.iter().map(|role| role.unit).collect::<Vec<_>>(), ["coracle-server"]);
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
