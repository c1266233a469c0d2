//! One process at a time records into a directory.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::PoisonError;

use nix::fcntl::{Flock, FlockArg};

use crate::keep::{Keep, Limits, make};
use crate::keep_error::{KeepError, at};
use crate::shared_memory::LOCK;

impl Keep {
    /// As [`Keep::open`], for a process that records: an error while another one does. Both would write to the same segments.
    pub fn exclusive(dir: &Path, limits: Limits) -> Result<Self, KeepError> {
        make(dir)?;
        let path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = Flock::lock(file.map_err(at("open", &path))?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, error)| at("lock", &path)(error.into()))?;
        let keep = Self::open(dir, limits)?;
        *keep.exclusive.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok(keep)
    }

    /// Nothing more is written.
    pub(crate) fn unlock(&self) {
        *self.exclusive.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_second_process_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Keep::exclusive(dir.path(), Limits::default());
        let keep = open().unwrap();
        assert!(open().err().unwrap().to_string().starts_with("cannot lock"));
        keep.unlock();
        assert!(open().is_ok());
    }
}
