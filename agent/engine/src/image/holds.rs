//! Which containers use an image.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Error, Result,
    files::{names_in, remove_file},
};

/// `holds/` of a store: one file per container in the directory of its image.
#[derive(Debug, Clone)]
pub(super) struct Holds {
    dir: PathBuf,
}

impl Holds {
    /// In the directory of a store.
    pub(super) fn new(root: &Path) -> Self {
        Holds { dir: root.join("holds") }
    }

    /// Containers that use an image.
    pub(super) fn of(&self, hex: &str) -> Result<Vec<String>> {
        names_in(&self.dir.join(hex))
    }

    pub(super) fn add(&self, hex: &str, container: &str) -> Result<()> {
        let dir = self.dir.join(hex);
        let path = dir.join(container);
        fs::create_dir_all(&dir).and_then(|()| fs::write(&path, "")).map_err(Error::io("writing", &path))
    }

    /// Idempotent.
    pub(super) fn remove(&self, hex: &str, container: &str) -> Result<()> {
        remove_file(&self.dir.join(hex).join(container))
    }

    /// Keeps those of containers for which `live` is true.
    pub(super) fn retain(&self, live: impl Fn(&str) -> bool) -> Result<()> {
        for hex in names_in(&self.dir)? {
            for container in self.of(&hex)? {
                if !live(&container) {
                    self.remove(&hex, &container)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the directory of an image that no container uses.
    pub(super) fn forget(&self, hex: &str) {
        let _ = fs::remove_dir(self.dir.join(hex));
    }
}
