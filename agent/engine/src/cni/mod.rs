//! The runtime side of CNI: which network a pod joins, and how it joins and leaves it.
//!
//! The first configuration of the conf dir is the cluster network. Every attachment is cached on disk in the layout
//! libcni uses, so that a restarted agent, or another tool, can still take it down with the very configuration it was
//! made with.

// Configuration files: which one counts, and what each plugin is given.
pub mod config;
// One plugin, one verb: environment, stdin, stdout, error.
pub mod exec;
// Cached attachments on disk.
pub mod cache;
// What a chain of plugins answered.
pub mod attachment;
// The verbs over a whole chain.
mod network;

pub use attachment::{Attachment, Dns, Interface};
pub use network::{Bandwidth, Network, NetworkDirs, PodNet, PortMapping};

use std::{io, path::PathBuf};

/// Why a pod could not join, leave or keep its network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The conf dir holds no configuration: the node's network is not ready.
    #[error("no network config found in {}: cni plugin not initialized", dir.display())]
    NoConfig {
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// The configuration that counts cannot be used.
    #[error("invalid CNI configuration {}: {reason}", path.display())]
    BadConfig {
        /// The offending file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A plugin the configuration names is not installed.
    #[error("failed to find plugin {plugin:?} in path {dirs:?}")]
    PluginMissing {
        /// The plugin's type.
        plugin: String,
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// A plugin answered with an error of the protocol.
    #[error("plugin type={plugin:?} name={network:?} failed ({verb}): {message}")]
    Plugin {
        /// The plugin's type.
        plugin: String,
        /// The network's name.
        network: String,
        /// `add`, `delete`, …
        verb: &'static str,
        /// The protocol's error code; 0 when the plugin died without one.
        code: u32,
        /// The plugin's own words.
        message: String,
    },
    /// A plugin could not be run at all.
    #[error("running CNI plugin {}", path.display())]
    Spawn {
        /// The executable.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The cache of attachments, or the conf dir, could not be read or written.
    #[error("{} {}", action, path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Several steps of a teardown failed; all of them were tried.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Many(Vec<Error>),
}

impl Error {
    /// Whether the plugin said "try again later" (code 11) or cannot serve now (50, 51).
    pub fn is_temporary(&self) -> bool {
        matches!(self, Error::NoConfig { .. } | Error::Plugin { code: 11 | 50 | 51, .. })
    }

    pub(crate) fn collect(mut errors: Vec<Error>) -> Result<(), Error> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Error::Many(errors)),
        }
    }
}

/// Outcome of a CNI operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests;
