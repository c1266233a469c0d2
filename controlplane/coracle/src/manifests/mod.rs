//! `--manifests`: objects in files of a directory, applied to the cluster and removed from it when they go from the files.
//!
//! A ConfigMap in `kube-system` for each file records what was applied from it, also for the next leader or a server that was
//! down while a file changed; Events about it tell how it went. Objects that a file created are deleted when they go from it;
//! those that were there before only lose the fields that the file had set.

// Files: what they hold, document by document.
mod documents;
// The directory, and changes in it.
mod directory;
// What was applied from a file, in the cluster.
mod record;
// Applies the documents of a file, and removes what is no longer in it.
mod apply;
// Follows the directory.
mod follow;

pub(crate) use follow::start;

/// The Lease of the server that applies manifests, and the field manager of what it applies.
pub(crate) const LEASE: &str = "coracle-manifests";

/// Why manifests cannot be applied from what the option names.
#[derive(Debug, thiserror::Error)]
#[error("--manifests {}", dir.display())]
pub struct ManifestsError {
    dir: std::path::PathBuf,
    source: std::io::Error,
}

/// Checks the directory when the server starts: later, one that is missing may be a disk that is not mounted.
pub(crate) fn check(dir: &std::path::Path) -> Result<(), ManifestsError> {
    match std::fs::read_dir(dir) {
        Ok(_) => Ok(()),
        Err(source) => Err(ManifestsError { dir: dir.to_owned(), source }),
    }
}
