//! Work under way in `ingest/`: what died there is removed.

use std::{
    fs::{self, File},
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

use super::{
    Error, Result,
    files::{names_in, remove_file},
};

/// Removes staged layers whose process died, and downloads not resumed for a day. The caller holds the lock of the store,
/// which is the directory `store`.
pub(super) fn sweep(store: &Path) -> Result<()> {
    for name in names_in(&store.join("ingest"))? {
        let path = store.join("ingest").join(&name);
        if name.starts_with("layer-") {
            let lock = File::open(path.join("alive")).ok();
            let dead = lock.is_none_or(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok());
            if dead {
                let doomed = store.join("trash").join(&name);
                fs::rename(&path, &doomed).map_err(Error::io("removing", &path))?;
            }
        } else if fs::metadata(&path)
            .and_then(|m| m.modified())
            .is_ok_and(|t| t.elapsed().is_ok_and(|age| age.as_secs() > 86_400))
        {
            remove_file(&path)?;
        }
    }
    Ok(())
}
