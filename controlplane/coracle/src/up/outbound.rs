//! Outbound network access of the nodes through slirp4netns, a user-space network stack: it needs no link, route or rule on
//! the machine, and is one end of a link in the hub. Without it the hub rejects outbound packets, so that connections fail at
//! once instead of timing out.

use super::process;
use super::process::Process;
use super::readiness;
use super::rules::Rules;
use super::state::State;
use crate::executables::find_program;
use anyhow::Context;
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The link's network: slirp4netns has .2, its name server .3, the hub .100.
const RANGE: &str = "10.89.1.0/24";
const NAME_SERVER: &str = "10.89.1.3";
/// Name servers of the machine. Nodes cannot reach those on the machine's loopback, so slirp4netns forwards queries to them.
const HOST_RESOLV_CONF: &str = "/etc/resolv.conf";
/// Timeout for the start of slirp4netns.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why nodes have no outbound access.
#[derive(Debug, thiserror::Error)]
enum OutboundError {
    #[error("{program} is missing (apt-get install {package})")]
    Missing { program: &'static str, package: &'static str },
    #[error("/dev/net/tun is missing (modprobe tun; a container needs --device /dev/net/tun)")]
    NoTun,
    #[error("{}: {error}", path.display())]
    Program { path: PathBuf, error: io::Error },
    #[error("{0:#}")]
    Start(anyhow::Error),
    #[error("slirp4netns did not start: {0}")]
    NotReady(String),
    #[error("rules of the hub: {0:#}")]
    Rules(anyhow::Error),
}

/// Sets up the outbound access in this run.
pub struct OutboundSetup {
    data_dir: PathBuf,
    /// Path of slirp4netns, or why it cannot be used; `None` when outbound access is disabled.
    program: Option<Result<PathBuf, OutboundError>>,
    rules: Option<Rules>,
    ready: Option<PipeReader>,
}

impl OutboundSetup {
    /// Decides whether outbound access is wanted, as in the previous run by default, and finds slirp4netns.
    pub fn plan(said: Option<bool>, state: &mut State, data_dir: &Path) -> Self {
        state.outbound.wanted = said.or(state.outbound.wanted);
        let program = state.outbound.wanted.unwrap_or(true).then(find_slirp4netns);
        Self { data_dir: data_dir.to_owned(), program, rules: None, ready: None }
    }

    /// Writes the resolv.conf of hub and nodes.
    pub fn ensure_resolv_conf(&self) -> anyhow::Result<PathBuf> {
        write_resolv_conf(&self.data_dir, matches!(self.program, Some(Ok(_))))
    }

    /// Starts slirp4netns and loads the rules unless this is done already. Idempotent; does not wait.
    pub fn begin(&mut self, state: &mut State) -> anyhow::Result<()> {
        let hub = state.hub.clone().context("the hub is up")?;
        self.ensure_resolv_conf()?;
        let known = &mut state.outbound;
        if known.ruled.as_ref() != Some(&hub) {
            self.rules = Some(Rules::write(&hub)?);
            known.ruled = Some(hub.clone());
        }
        let running = known.process.take().filter(Process::alive);
        known.process = match (&self.program, running) {
            (Some(Ok(program)), None) => match start(program, &hub, &log(&self.data_dir)) {
                Ok((process, ready)) => {
                    self.ready = Some(ready);
                    Some(process)
                }
                Err(error) => {
                    self.program = Some(Err(OutboundError::Start(error)));
                    None
                }
            },
            (Some(Ok(_)), running) => running,
            (_, Some(process)) => {
                process::end(&process);
                None
            }
            (_, None) => None,
        };
        Ok(())
    }

    /// Waits until slirp4netns is ready. A failure is printed and the cluster runs without outbound access.
    pub fn finish(self, state: &mut State) -> anyhow::Result<()> {
        let ruled = self.rules.map_or(Ok(()), Rules::finish).map_err(OutboundError::Rules);
        if ruled.is_err() {
            state.outbound.ruled = None;
        }
        let Some(program) = self.program else { return Ok(()) };
        let opened = match self.ready.is_none_or(|ready| readiness::is_ready_within(ready, PATIENCE)) {
            true => Ok(()),
            false => Err(OutboundError::NotReady(last_log(&self.data_dir))),
        };
        let Err(why) = program.and(ruled).and(opened) else { return Ok(()) };
        eprintln!("nodes have no way out of this machine, images must be imported: {why}");
        write_resolv_conf(&self.data_dir, false)?;
        if let Some(process) = state.outbound.process.take() {
            process::end(&process);
        }
        state.write(&self.data_dir)
    }
}

fn log(data_dir: &Path) -> PathBuf {
    data_dir.join("outbound.log")
}

fn last_log(data_dir: &Path) -> String {
    let text = std::fs::read_to_string(log(data_dir)).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Path of the file that is mounted as /etc/resolv.conf in the hub and the nodes.
pub fn resolv_conf(data_dir: &Path) -> PathBuf {
    data_dir.join("resolv.conf")
}

/// Written in place, because it is mounted in running nodes.
fn write_resolv_conf(data_dir: &Path, way_out: bool) -> anyhow::Result<PathBuf> {
    let machine = std::fs::read_to_string(HOST_RESOLV_CONF).unwrap_or_default();
    let text = if way_out { forwarded(&machine) } else { machine };
    let path = resolv_conf(data_dir);
    if !std::fs::read_to_string(&path).is_ok_and(|known| known == text) {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

/// The machine's resolv.conf with slirp4netns as the name server.
fn forwarded(machine: &str) -> String {
    let rest = machine.lines().filter(|line| {
        let word = line.split_whitespace().next();
        matches!(word, Some("search" | "domain" | "options"))
    });
    let lines: Vec<String> = rest.map(|line| format!("{line}\n")).collect();
    format!("nameserver {NAME_SERVER}\n{}", lines.concat())
}

fn find_slirp4netns() -> Result<PathBuf, OutboundError> {
    let find = |program: &'static str, package: &'static str| {
        find_program(program).ok_or(OutboundError::Missing { program, package })
    };
    let slirp = find("slirp4netns", "slirp4netns")?;
    find("nft", "nftables")?;
    if !Path::new("/dev/net/tun").exists() {
        return Err(OutboundError::NoTun);
    }
    slirp.canonicalize().map_err(|error| OutboundError::Program { path: slirp, error })
}

/// Starts slirp4netns in its sandbox with seccomp. It writes to the pipe when it is ready.
fn start(program: &Path, hub: &Process, log: &Path) -> anyhow::Result<(Process, PipeReader)> {
    let (reader, writer) = std::io::pipe()?;
    let fd = process::inherited(&writer)?;
    let flags = [
        "--configure".into(),
        "--netns-type=path".into(),
        format!("--cidr={RANGE}"),
        "--disable-host-loopback".into(),
        "--enable-sandbox".into(),
        "--enable-seccomp".into(),
        format!("--ready-fd={fd}"),
        format!("/proc/{}/ns/net", hub.pid),
        "out0".into(),
    ];
    let process = process::start_beside(hub, program, &flags, log)?;
    Ok((process, reader))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_ask_the_forwarder_as_the_machine_would_ask() {
        let machine =
            "# made by hand\nnameserver 127.0.0.53\nnameserver ::1\noptions edns0 trust-ad\nsearch lan\n";
        assert_eq!(forwarded(machine), "nameserver 10.89.1.3\noptions edns0 trust-ad\nsearch lan\n");
        assert_eq!(forwarded(""), "nameserver 10.89.1.3\n");
    }

    #[test]
    fn what_was_said_counts_until_something_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::default();
        for (said, wanted) in [(Some(false), false), (None, false), (Some(true), true), (None, true)] {
            let setup = OutboundSetup::plan(said, &mut state, dir.path());
            assert_eq!((setup.program.is_some(), state.outbound.wanted), (wanted, Some(wanted)));
        }
    }
}
