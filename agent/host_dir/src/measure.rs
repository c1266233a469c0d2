//! Disk usage of a tree, as `du -x` counts it.

use std::io;

use super::entry::kind;
use super::{HostDir, Limits, WalkError, is_no_directory};
use nix::sys::stat::SFlag;

/// Size reported for a tree that is too deep or too large to measure; exceeds any limit.
pub const UNMEASURABLE: u64 = 1 << 60;

/// Disk usage of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes on disk.
    pub bytes: u64,
    /// Entries, the directory itself not counted.
    pub files: u64,
}

/// Bytes and entries below a directory. Entries removed meanwhile are ignored, other mounts are not counted.
pub fn measure(dir: HostDir) -> Size {
    let mut size = Size::default();
    let walked = dir.walk(Limits::default(), |dir, name| {
        let Ok(stat) = dir.stat_entry(name) else { return Ok(None) };
        size.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        size.files += 1;
        if kind(&stat) != SFlag::S_IFDIR {
            return Ok(None);
        }
        match dir.open_dir_of_mount(name) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    });
    match walked {
        Ok(()) => {}
        Err(WalkError::TooDeep { .. } | WalkError::TooMany { .. }) => size.bytes = UNMEASURABLE,
        Err(WalkError::Io(error)) => tracing::debug!(%error, "disk usage measured only partially"),
    }
    size
}

/// The entry was removed or replaced meanwhile, or is a mount.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::CrossesDevices) || is_no_directory(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_counted_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("tree/sub")).unwrap();
        fs::create_dir(temp.path().join("outside")).unwrap();
        fs::write(temp.path().join("outside/big"), vec![1; 1 << 20]).unwrap();
        fs::write(temp.path().join("tree/sub/file"), vec![1; 10_000]).unwrap();
        symlink("../../outside", temp.path().join("tree/sub/link")).unwrap();
        symlink("..", temp.path().join("tree/sub/loop")).unwrap();
        let size = measure(HostDir::open(&temp.path().join("tree")).unwrap());
        assert_eq!(size.files, 4);
        assert!((10_000..100_000).contains(&size.bytes), "{size:?}");
    }

    #[test]
    fn a_tree_that_is_too_deep_is_over_every_limit() {
        let temp = tempfile::tempdir().unwrap();
        let deep = |levels: usize| temp.path().join(vec!["d"; levels].join("/"));
        fs::create_dir_all(deep(100)).unwrap();
        assert!(measure(HostDir::open(temp.path()).unwrap()).bytes < UNMEASURABLE);
        fs::create_dir_all(deep(200)).unwrap();
        assert_eq!(measure(HostDir::open(temp.path()).unwrap()).bytes, UNMEASURABLE);
    }
}
