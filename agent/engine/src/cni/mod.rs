//! The runtime side of CNI: attaches pods to the cluster network and detaches them.
//!
//! The first configuration of the conf dir is the cluster network. Every attachment is cached on disk in the layout
//! libcni uses, so that a restarted agent, or another tool, can detach it with the configuration it was attached with.

// Configuration files.
pub mod config;
// Executes a plugin.
pub mod exec;
// Cached attachments on disk.
pub mod cache;
// Results of plugin chains.
pub mod attachment;
// ADD, DEL, CHECK and GC of a plugin chain.
mod network;

pub use attachment::{Attachment, Dns, Interface};
pub use config::ConfigError;
pub use network::{Bandwidth, Network, NetworkDirs, PodNet, PortMapping};

use std::{io, path::PathBuf};

use coracle_cli::causes;

/// Why a CNI operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The conf dir holds no configuration: the node's network is not ready.
    #[error("no network config found in {}: cni plugin not initialized", dir.display())]
    NoConfig {
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// The configuration is invalid.
    #[error("invalid CNI configuration {}: {}", path.display(), causes::chain(reason))]
    BadConfig {
        /// The offending file.
        path: PathBuf,
        /// What is wrong with it; part of the text, with its causes.
        reason: ConfigError,
    },
    /// A plugin the configuration names is not installed.
    #[error("failed to find plugin {plugin:?} in path {dirs:?}")]
    PluginMissing {
        /// The plugin's type.
        plugin: String,
        /// Directories that were searched.
        dirs: Vec<PathBuf>,
    },
    /// A plugin returned a CNI error.
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
        /// The plugin's error message.
        message: String,
    },
    /// A plugin could not be run at all.
    #[error("running CNI plugin {}", path.display())]
    Spawn {
        /// The executable.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The cache of attachments, or the conf dir, could not be read or written.
    #[error("{} {}", action, path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Several steps of a teardown failed; all of them were tried.
    #[error("{}", .0.iter().map(|error| causes::chain(error)).collect::<Vec<_>>().join("; "))]
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
