//! What `coracle up` started, kept in `<data-dir>/up.json` so that a later `up` or `down` finds it again.

use super::process::Process;
use super::published::Published;
use super::registered::Registry;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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
    /// The port of the registry that its agent knows.
    #[serde(default)]
    pub registry: Option<u16>,
}

/// The name of the node with a number.
pub fn node_name(number: usize) -> String {
    format!("node-{number}")
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
    /// The highest number of a node of the cluster; also while they do not run.
    pub node_count: usize,
    /// Lower numbers whose nodes were removed.
    pub removed: BTreeSet<usize>,
    /// Image archives that were loaded into all nodes, for nodes that are added.
    pub images: Vec<PathBuf>,
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
    /// The registry for images of the cluster.
    pub registry: Option<Registry>,
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

    /// Numbers of the nodes of the cluster, whether they run or not.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (1..=self.node_count).filter(|number| !self.removed.contains(number))
    }

    /// Names of the nodes of the cluster, whether they run or not.
    pub fn names(&self) -> Vec<String> {
        self.numbers().map(node_name).collect()
    }

    /// Adds a node to the cluster, with the lowest number that is free.
    pub fn add_number(&mut self) -> usize {
        self.removed.pop_first().unwrap_or_else(|| {
            self.node_count += 1;
            self.node_count
        })
    }

    /// Removes a node from the cluster.
    pub fn remove_number(&mut self, number: usize) {
        self.removed.insert(number);
        while self.removed.remove(&self.node_count) {
            self.node_count -= 1;
        }
    }

    /// Adds nodes, or removes those with the highest numbers; returns the numbers of these.
    pub fn set_count(&mut self, count: usize) -> Vec<usize> {
        while self.numbers().count() < count {
            self.add_number();
        }
        let gone: Vec<usize> = self.numbers().skip(count).collect();
        for number in &gone {
            self.remove_number(*number);
        }
        gone
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
        let registry = self.registry.take().map(Registry::ended);
        Self { hub: None, server: None, nodes: Vec::new(), registry, ..self }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_of_nodes_that_were_removed_are_used_again() {
        let mut state = State::default();
        assert!(state.set_count(4).is_empty());
        state.remove_number(2);
        assert_eq!(state.names(), ["node-1", "node-3", "node-4"]);
        state.remove_number(4);
        assert_eq!((state.names().len(), state.node_count), (2, 3));
        assert_eq!((state.add_number(), state.add_number()), (2, 4));
        state.remove_number(1);
        assert_eq!(state.set_count(1), [3, 4]);
        assert_eq!(state.names(), ["node-2"]);
        assert!(state.set_count(3).is_empty());
        assert_eq!(state.names(), ["node-1", "node-2", "node-3"]);
    }

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
