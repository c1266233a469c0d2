//! The nodes' way out to the network of the machine, without a link, route or rule on the machine: slirp4netns, a
//! process that speaks to the outside as any program does, and is one end of a link in the hub. Without it the hub
//! refuses at once what would leave, so that nobody waits for answers that cannot come.

use super::process;
use super::state::{Process, State};
use crate::doctor::find_program;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The link's network: slirp4netns has .2, its name server .3, the hub .100.
const RANGE: &str = "10.89.1.0/24";
const NAME_SERVER: &str = "10.89.1.3";
/// The machine's name servers. slirp4netns asks them for the nodes, which cannot where they are on the machine's loopback.
const MACHINE_NAMES: &str = "/etc/resolv.conf";
/// How long slirp4netns may take; it needs some hundredths of a second, while other parts start.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a new hub is told. With slirp4netns there is a default route; nodes that find none get to a table that leads
/// nowhere, only to be refused there: in a way that ends waiting for connections and datagrams alike, as often as it is asked.
const RULES: &str = r#"set -e
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 0 > /proc/sys/net/ipv4/icmp_ratelimit
[ ! -e /proc/sys/net/ipv6/conf/all/forwarding ] || echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
ip rule del pref 40000 2> /dev/null || true
ip rule add pref 40000 iif hub0 lookup 89
if command -v nft > /dev/null && nft -f - << END
table ip coracle-outbound
delete table ip coracle-outbound
table ip coracle-outbound {
    chain leave { type nat hook postrouting priority 100; oifname "out0" masquerade; }
    chain stay { type filter hook forward priority 0; oifname "lo" reject with icmp type net-prohibited; }
}
END
then
    ip route replace default dev lo table 89
else
    ip route replace prohibit default table 89
    exit 1
fi
"#;

/// What is known of it between two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbound {
    /// Whether it was asked for.
    pub wanted: Option<bool>,
    /// slirp4netns. It is in the hub's pid namespace, and ends with it.
    pub process: Option<Process>,
    /// The hub that has its rules.
    pub ruled: Option<Process>,
}

/// What this run does for it.
pub struct Opening {
    data_dir: PathBuf,
    /// slirp4netns, or why there is none; `None` where none is wanted.
    means: Option<Result<PathBuf, String>>,
    rules: Option<Child>,
    ready: Option<PipeReader>,
}

impl Opening {
    /// Finds out what is wanted, as before where it is not said, and what there is for it.
    pub fn plan(said: Option<bool>, state: &mut State, data_dir: &Path) -> Self {
        state.outbound.wanted = said.or(state.outbound.wanted);
        let means = state.outbound.wanted.unwrap_or(true).then(means);
        Self { data_dir: data_dir.to_owned(), means, rules: None, ready: None }
    }

    /// Writes down whom hub and nodes ask for names.
    pub fn ensure_names(&self) -> anyhow::Result<PathBuf> {
        write_names(&self.data_dir, matches!(self.means, Some(Ok(_))))
    }

    /// Starts what does not run, and waits for nothing. Again at no cost.
    pub fn begin(&mut self, state: &mut State) -> anyhow::Result<()> {
        let hub = state.hub.clone().context("the hub is up")?;
        self.ensure_names()?;
        let known = &mut state.outbound;
        if known.ruled.as_ref() != Some(&hub) {
            self.rules = Some(rule(&hub)?);
            known.ruled = Some(hub.clone());
        }
        let running = known.process.take().filter(Process::alive);
        known.process = match (&self.means, running) {
            (Some(Ok(program)), None) => match start(program, &hub, &log(&self.data_dir)) {
                Ok((process, ready)) => {
                    self.ready = Some(ready);
                    Some(process)
                }
                Err(error) => {
                    self.means = Some(Err(format!("{error:#}")));
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

    /// Waits for what was started; a cluster without a way out is a cluster still, and the reason is said.
    pub fn finish(self, state: &mut State) -> anyhow::Result<()> {
        let ruled = self.rules.map_or(Ok(()), finished);
        if ruled.is_err() {
            state.outbound.ruled = None;
        }
        let Some(means) = self.means else { return Ok(()) };
        let opened = match self.ready.is_none_or(is_ready) {
            true => Ok(()),
            false => Err(format!("slirp4netns did not start: {}", said(&self.data_dir))),
        };
        let Err(why) = means.and(ruled).and(opened) else { return Ok(()) };
        eprintln!("nodes have no way out of this machine, images must be imported: {why}");
        write_names(&self.data_dir, false)?;
        if let Some(process) = state.outbound.process.take() {
            process::end(&process);
        }
        state.write(&self.data_dir)
    }
}

fn log(data_dir: &Path) -> PathBuf {
    data_dir.join("outbound.log")
}

fn said(data_dir: &Path) -> String {
    let text = std::fs::read_to_string(log(data_dir)).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// What the nodes and the hub see as their /etc/resolv.conf, whether there is a way out or not.
pub fn names(data_dir: &Path) -> PathBuf {
    data_dir.join("resolv.conf")
}

/// In place: it is mounted in nodes that run.
fn write_names(data_dir: &Path, way_out: bool) -> anyhow::Result<PathBuf> {
    let machine = std::fs::read_to_string(MACHINE_NAMES).unwrap_or_default();
    let text = if way_out { forwarded(&machine) } else { machine };
    let path = names(data_dir);
    if !std::fs::read_to_string(&path).is_ok_and(|known| known == text) {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

/// The machine's searches and options, with another server.
fn forwarded(machine: &str) -> String {
    let rest = machine.lines().filter(|line| {
        let word = line.split_whitespace().next();
        matches!(word, Some("search" | "domain" | "options"))
    });
    let lines: Vec<String> = rest.map(|line| format!("{line}\n")).collect();
    format!("nameserver {NAME_SERVER}\n{}", lines.concat())
}

fn means() -> Result<PathBuf, String> {
    let program = |name: &str, package: &str| {
        find_program(name).ok_or_else(|| format!("{name} is missing (apt-get install {package})"))
    };
    let slirp = program("slirp4netns", "slirp4netns")?;
    program("nft", "nftables")?;
    if !Path::new("/dev/net/tun").exists() {
        return Err("/dev/net/tun is missing (modprobe tun; a container needs --device /dev/net/tun)".into());
    }
    slirp.canonicalize().map_err(|error| format!("{}: {error}", slirp.display()))
}

fn rule(hub: &Process) -> anyhow::Result<Child> {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["-t", &hub.pid.to_string(), "--net", "--mount", "sh", "-c", RULES]);
    nsenter.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("nsenter")
}

fn finished(rules: Child) -> Result<(), String> {
    match rules.wait_with_output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("rules of the hub: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("rules of the hub: {error}")),
    }
}

/// Starts slirp4netns, with as few rights as it offers; the pipe says when it is ready.
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

/// Whether the other end said so; it is closed when slirp4netns ends.
fn is_ready(mut ready: PipeReader) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let begun = Instant::now();
    while let Some(left) = PATIENCE.checked_sub(begun.elapsed()) {
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(ready.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return false,
            Ok(_) => return ready.read(&mut [0]).is_ok_and(|read| read == 1),
            Err(_) => {}
        }
    }
    false
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
            let opening = Opening::plan(said, &mut state, dir.path());
            assert_eq!((opening.means.is_some(), state.outbound.wanted), (wanted, Some(wanted)));
        }
    }
}
