//! Volumes of a pod: made before its first container, kept up to date, removed after its last.
//!
//! Containers write into these directories while the agent, root on the host, works in them: everything here goes through
//! [`coracle_host_dir::HostDir`], and functions that take a path are refused.
#![deny(clippy::disallowed_methods)]

// Files of ConfigMap, Secret, downward API and projected volumes.
pub mod content;
// Swapping them in all at once.
pub mod atomic;
// Service account tokens.
pub mod token;
// Paths of the host.
pub mod host_path;
// Directories that the cluster made volumes of.
pub mod local_path;
// Claims onto volumes of this node.
pub mod persistent;
// Directories that live as long as the pod.
pub mod empty_dir;
// Volumes inside other volumes.
pub mod nested;
// Group ownership.
pub mod ownership;
// All volumes of a pod.
pub mod prepare;
// Parts of volumes.
pub mod subpath;
// Volumes as a container's mounts.
pub mod mounts;
// Removing it all.
pub mod teardown;

use std::path::PathBuf;

/// Why a volume is not ready; shown in a `FailedMount` event, and tried again.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// One volume failed.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {reason}")]
    Setup {
        /// Volume name.
        volume: String,
        /// Why.
        reason: String,
    },
    /// A file operation failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Adds path and action to an I/O error.
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> VolumeError {
    let path = path.into();
    move |source| VolumeError::Io { action, path, source }
}
