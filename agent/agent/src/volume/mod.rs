//! Volumes of a pod: created before its first container, updated, removed after its last.
//!
//! Containers write into these directories while the agent, root on the host, works in them: everything here goes through
//! [`coracle_host_dir::HostDir`]; clippy denies functions that take a path.
#![deny(clippy::disallowed_methods)]

// Files of ConfigMap, Secret, downward API and projected volumes.
pub mod content;
// Atomic updates of files.
pub mod atomic;
// Service account tokens.
pub mod token;
// Paths of the host.
pub mod host_path;
// Directories that the cluster made volumes of.
pub mod local_path;
// Series about volumes.
pub mod metrics;
// Options that volumes are mounted with.
pub mod mount_options;
// Disks of this node.
pub mod local_disk;
// Directories of NFS servers.
pub mod nfs;
// Volumes of storage drivers.
pub mod csi;
// Why a claim cannot be mounted.
pub mod claim_error;
// What volumes are prepared for.
pub mod purpose;
// PersistentVolumeClaims.
pub mod persistent;
// Memory that is not swapped out.
mod tmpfs;
// Directories that live as long as the pod.
pub mod empty_dir;
// Volumes inside other volumes.
pub mod nested;
// Group ownership.
pub mod ownership;
// All volumes of a pod.
pub mod prepare;
// Volumes of claims, servers and drivers.
mod claimed;
// subPath mounts.
pub mod subpath;
// Volumes as a container's mounts.
pub mod mounts;
// Removal of volumes.
pub mod teardown;
// How full volumes are.
pub mod usage;
// The volumes of all pods of the node.
pub mod volumes;

use std::path::PathBuf;

/// A file operation on a volume that failed; can be tried again.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {source}")]
pub struct FileError {
    /// The operation.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: std::io::Error,
}

/// Adds path and action to an I/O error.
pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> FileError {
    let path = path.into();
    move |source| FileError { action, path, source }
}
