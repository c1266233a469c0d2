//! Deletions under way. Layers are large: they become invisible by a rename and are deleted afterwards.

use std::{
    fs,
    path::{Path, PathBuf},
};

use coracle_cli::causes;

use super::super::paths::remove_tree;
use super::{Error, Result, files::names_in};

/// `trash/` of a store.
#[derive(Debug, Clone)]
pub(super) struct Trash {
    dir: PathBuf,
}

impl Trash {
    /// In the directory of a store.
    pub(super) fn new(root: &Path) -> Self {
        Trash { dir: root.join("trash") }
    }

    /// Moves a directory here.
    pub(super) fn add(&self, path: &Path) -> Result<()> {
        let doomed = self.dir.join(uuid::Uuid::new_v4().to_string());
        fs::rename(path, doomed).map_err(Error::io("removing", path))
    }

    /// Deletes in the background; what a crash leaves is deleted at the next opening.
    pub(super) fn empty(&self) {
        if names_in(&self.dir).is_ok_and(|doomed| !doomed.is_empty()) {
            let trash = self.clone();
            std::thread::spawn(move || trash.purge());
        }
    }

    /// Deletes everything here and waits for it.
    pub(super) fn purge(&self) {
        for doomed in names_in(&self.dir).unwrap_or_default() {
            let path = self.dir.join(doomed);
            // A layer may be too deep for a recursive removal.
            if let Err(error) = remove_tree(&path) {
                tracing::warn!(path = %path.display(), error = %causes::chain(&error), "image layer not deleted, will retry at the next start");
            }
        }
    }
}
