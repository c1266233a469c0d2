//! state, list, kill, delete, pause, resume, ps.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use coracle_keeper::pidfd;
use libcontainer::container::ContainerStatus;
use liboci_cli::{Delete, Kill, List, Ps};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::Serialize;

use super::container::Known;
use super::error::Error;

/// The answer of `state`, as the runtime specification has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct State {
    oci_version: String,
    id: String,
    pid: i32,
    status: String,
    bundle: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    annotations: std::collections::BTreeMap<String, String>,
}

impl State {
    fn of(known: &Known) -> Self {
        let container = &known.container;
        Self {
            oci_version: container.state.oci_version.clone(),
            id: container.id().to_owned(),
            pid: known.pid(),
            status: container.status().to_string().to_lowercase(),
            bundle: container.bundle().clone(),
            created: container.created().map(|at| at.to_rfc3339()),
            annotations: container.state.annotations.clone().unwrap_or_default().into_iter().collect(),
        }
    }
}

fn print(value: &impl Serialize) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(Error::json("standard output"))?;
    writeln!(out).map_err(Error::file("standard output"))
}

/// `state`.
pub fn state(root: &Path, id: &str) -> Result<(), Error> {
    print(&State::of(&Known::load(root, id)?))
}

/// `list`.
pub fn list(root: &Path, args: &List) -> Result<(), Error> {
    let mut states = Vec::new();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::file(root))?,
    };
    for entry in entries {
        let name = entry.map_err(Error::file(root))?.file_name();
        // What is removed meanwhile is left out.
        if let Some(known) = name.to_str().and_then(|id| Known::load(root, id).ok()) {
            states.push(State::of(&known));
        }
    }
    states.sort_by(|a, b| a.id.cmp(&b.id));
    if args.format == "json" {
        return print(&states);
    }
    let mut out = io::stdout().lock();
    for state in &states {
        let line = match args.quiet {
            true => state.id.clone(),
            false => format!("{}\t{}\t{}\t{}", state.id, state.pid, state.status, state.bundle.display()),
        };
        writeln!(out, "{line}").map_err(Error::file("standard output"))?;
    }
    Ok(())
}

/// `kill`: the first process, or all.
pub fn kill(root: &Path, args: &Kill) -> Result<(), Error> {
    let known = Known::load(root, &args.container_id)?;
    let signal = signal(&args.signal)?;
    if args.all {
        return kill_all(&known, signal);
    }
    let status = known.container.status();
    if !known.container.can_kill() {
        return Err(Error::Status { verb: "kill", status });
    }
    // The pidfd is opened before the start time is compared: both are of one process.
    let process = pidfd::open(known.pid()).map_err(Error::kernel("process"))?;
    if pidfd::start_time(known.pid()) != Some(known.start_time) {
        return Err(Error::Status { verb: "kill", status: ContainerStatus::Stopped });
    }
    pidfd::kill(&process, signal).map_err(Error::kernel("kill"))
}

fn kill_all(known: &Known, signal: i32) -> Result<(), Error> {
    if signal == libc::SIGKILL {
        let file = known.cgroup()?.join("cgroup.kill");
        return fs::write(&file, "1").map_err(Error::file(file));
    }
    for pid in known.pids()? {
        // It may have ended meanwhile.
        let Ok(process) = pidfd::open(pid) else { continue };
        match pidfd::kill(&process, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(Error::Kernel { step: "kill", errno }),
        }
    }
    Ok(())
}

/// A number, or a name with or without `SIG`.
fn signal(text: &str) -> Result<i32, Error> {
    let invalid = || Error::Invalid { what: "signal", value: text.to_owned() };
    if let Ok(number) = text.parse::<i32>() {
        return if (0..=64).contains(&number) { Ok(number) } else { Err(invalid()) };
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse::<Signal>().map(|signal| signal as i32).map_err(|_| invalid())
}

/// `delete`.
pub fn delete(root: &Path, args: &Delete) -> Result<(), Error> {
    let mut known = match Known::load(root, &args.container_id) {
        Err(Error::NoContainer(_)) if args.force => return Ok(()),
        known => known?,
    };
    if known.container.status() == ContainerStatus::Stopped {
        // The pid may be another process's by now.
        known.container.state.pid = None;
    }
    match known.container.status() {
        ContainerStatus::Stopped | ContainerStatus::Created => {}
        _ if args.force => {}
        status => return Err(Error::Status { verb: "delete", status }),
    }
    Ok(known.container.delete(args.force)?)
}

/// `pause`.
pub fn pause(root: &Path, id: &str) -> Result<(), Error> {
    let mut known = Known::load(root, id)?;
    match known.container.status() {
        ContainerStatus::Running => Ok(known.container.pause()?),
        status => Err(Error::Status { verb: "pause", status }),
    }
}

/// `resume`.
pub fn resume(root: &Path, id: &str) -> Result<(), Error> {
    let mut known = Known::load(root, id)?;
    match known.container.status() {
        ContainerStatus::Paused => Ok(known.container.resume()?),
        status => Err(Error::Status { verb: "resume", status }),
    }
}

/// `ps`: pids as JSON, or the lines of `ps` about them.
pub fn processes(root: &Path, args: &Ps) -> Result<(), Error> {
    let known = Known::load(root, &args.container_id)?;
    let pids = known.pids()?;
    if args.format == "json" {
        return print(&pids);
    }
    let default = ["-ef".to_owned()];
    let options = if args.ps_options.is_empty() { &default[..] } else { &args.ps_options };
    let output = Command::new("ps").args(options).output().map_err(Error::file("ps"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split_whitespace().position(|name| name == "PID");
    let column = column.ok_or_else(|| Error::Invalid { what: "columns of ps", value: head.to_owned() })?;
    let ours = |line: &&str| {
        line.split_whitespace()
            .nth(column)
            .and_then(|pid| pid.parse().ok())
            .is_some_and(|pid| pids.contains(&pid))
    };
    let mut out = io::stdout().lock();
    for line in std::iter::once(head).chain(lines.filter(ours)) {
        writeln!(out, "{line}").map_err(Error::file("standard output"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn signals_by_number_and_name() {
        for (text, wanted) in
            [("9", 9), ("KILL", 9), ("SIGTERM", 15), ("term", 15), ("5", 5), ("64", 64), ("0", 0)]
        {
            assert_eq!(signal(text).unwrap(), wanted, "{text}");
        }
        for text in ["", "-1", "65", "NOPE", "SIG"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
