//! What `coracle up` started, kept in `<data-dir>/up.json` so that a later `up` or `down` finds it again.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;

/// A process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process behind a number right now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// Field 22 of `/proc/<pid>/stat`; `None` for processes that are gone or zombies.
fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok())?
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Keeps its namespaces.
    pub holder: Process,
    /// Its agent.
    pub agent: Option<Process>,
    /// Its address on the bridge.
    pub address: String,
    /// The same of IPv6, where pods have both.
    #[serde(default)]
    pub address6: Option<String>,
}

/// Everything that was started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Keeps the network namespace of the server and the bridge.
    pub hub: Option<Process>,
    /// The server.
    pub server: Option<Process>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Where the API listens on this machine.
    pub bind: Option<SocketAddr>,
    /// What the server was told besides.
    pub server_flags: Vec<String>,
    /// What the agents were told besides.
    pub agent_flags: Vec<String>,
}

impl State {
    /// Reads it; nothing there means that nothing was started.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        match std::fs::read(dir.join("up.json")) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes it.
    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        Ok(crate::pki::write_private(&dir.join("up.json"), &serde_json::to_vec_pretty(self)?)?)
    }

    /// Removes it.
    pub fn forget(dir: &Path) -> anyhow::Result<()> {
        match std::fs::remove_file(dir.join("up.json")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}
