//! One server has a data directory.

use super::MemberError;
use std::fs::{File, TryLockError};
use std::path::Path;

/// The file.
pub(super) const LOCK: &str = "etcd.lock";

/// The right to run a member on a data directory; given up when dropped, or with the process.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code)] File);

impl Lock {
    pub(super) fn take(data_dir: &Path) -> Result<Self, MemberError> {
        let path = data_dir.join(LOCK);
        std::fs::create_dir_all(data_dir).map_err(MemberError::file(data_dir))?;
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(MemberError::file(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(MemberError::Locked(data_dir.to_owned())),
            Err(TryLockError::Error(error)) => Err(MemberError::file(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_server_has_a_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert!(matches!(Lock::take(dir.path()), Err(MemberError::Locked(_))));
        drop(lock);
        Lock::take(dir.path()).unwrap();
    }
}
