//! Room for etcd's data. A member on a full disk ends as soon as it writes. Started again it may lead for a moment, which costs the
//! cluster another election when it ends.

use super::MemberError;
use nix::sys::statvfs::statvfs;
use std::path::Path;

/// What etcd reserves for the next file of its log.
const NEEDED: u64 = 64_000_000;

/// Fails if the file system of the directory has too little room for a member to go on.
pub(super) fn check(dir: &Path) -> Result<(), MemberError> {
    has_room(dir, NEEDED)
}

fn has_room(dir: &Path, needed: u64) -> Result<(), MemberError> {
    // If it is not known, etcd finds out.
    let Ok(disk) = statvfs(dir) else { return Ok(()) };
    let free = disk.blocks_available() * disk.fragment_size();
    if free >= needed {
        return Ok(());
    }
    Err(MemberError::Full { dir: dir.to_owned(), free: free >> 20, needed: needed >> 20 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_file_system_is_named() {
        let dir = tempfile::tempdir().unwrap();
        has_room(dir.path(), 0).unwrap();
        let why = has_room(dir.path(), u64::MAX).unwrap_err().to_string();
        assert!(why.starts_with(&format!("the file system of {} has ", dir.path().display())), "{why}");
        has_room(Path::new("/nonexistent/etcd"), u64::MAX).unwrap();
    }
}
