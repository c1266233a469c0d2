//! What `coracle up` started, kept in `<data-dir>/up.json` so that a later `up` or `down` finds it again.

use super::process::Process;
use super::published::Published;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Keeps its namespaces.
    pub holder: Process,
    /// Keeps its agent running.
    pub agent: Option<Process>,
    /// Its address on the bridge.
    pub address: String,
    /// The same of IPv6, where pods have both.
    #[serde(default)]
    pub address6: Option<String>,
}

/// State of the outbound access, stored between runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbound {
    /// The last `--outbound`.
    pub wanted: Option<bool>,
    /// slirp4netns. It runs in the pid namespace of the hub and ends with it.
    pub process: Option<Process>,
    /// The hub for which the rules are loaded.
    pub ruled: Option<Process>,
}

/// Everything that was started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Keeps the network namespace of the server and the bridge.
    pub hub: Option<Process>,
    /// Keeps the server running.
    pub server: Option<Process>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// How many nodes the cluster has; also while they do not run.
    pub node_count: usize,
    /// Where the API listens on this machine.
    pub bind: Option<SocketAddr>,
    /// Additional flags of the server.
    pub server_flags: Vec<String>,
    /// Additional flags of the agents.
    pub agent_flags: Vec<String>,
    /// The nodes' way out.
    pub outbound: Outbound,
    /// Ports of this machine that lead into the cluster.
    pub published: Vec<Published>,
}

impl State {
    /// Where it is kept.
    pub fn file(dir: &Path) -> PathBuf {
        dir.join("up.json")
    }

    /// Reads it; nothing there means that there is no cluster.
    pub fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let file = Self::file(dir);
        let named = || file.display().to_string();
        match std::fs::read(&file) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(named)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{} is for root alone: run it with sudo", file.display())
            }
            Err(error) => Err(error).with_context(named),
        }
    }

    /// Writes it.
    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let file = Self::file(dir);
        coracle_pki::write_private(&file, &serde_json::to_vec_pretty(self)?)
            .with_context(|| file.display().to_string())
    }

    /// Whether anything was started and not ended by `down`.
    pub fn started(&self) -> bool {
        self.hub.is_some() || self.server.is_some() || !self.nodes.is_empty()
    }

    /// Forgets the processes, and keeps what the next `up` is to be like.
    pub fn ended(mut self) -> Self {
        for published in &mut self.published {
            published.forwarder = None;
        }
        Self { hub: None, server: None, nodes: Vec::new(), ..self }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_ended_is_known_by_what_it_was_like() {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::read(dir.path()).unwrap().is_none());
        let ours = Process::of(std::process::id());
        let bind = Some(SocketAddr::from(([127, 0, 0, 1], 7443)));
        let state = State { hub: ours, bind, node_count: 3, ..State::default() };
        assert!(state.started());
        state.ended().write(dir.path()).unwrap();
        let kept = State::read(dir.path()).unwrap().unwrap();
        assert!(!kept.started());
        assert_eq!((kept.bind, kept.node_count), (bind, 3));
    }
}
