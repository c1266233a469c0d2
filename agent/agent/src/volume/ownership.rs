//! A pod's `fsGroup` owns the files of its volumes.

use std::io;
use std::path::Path;

use super::{FileError, io};
use coracle_host_dir::{HostDir, Limits};

/// Limits of the walk: larger volumes would delay their pod for hours.
const LIMITS: Limits = Limits { depth: 128, entries: 100_000_000 };

/// Changes a tree to a group: group read and write, setgid on directories. With `on_root_mismatch`, nothing is changed
/// if the root matches already.
///
/// Containers can change the tree meanwhile: each entry is held before it is looked at, and links are not followed.
pub fn give_to_group(root: &Path, group: u32, on_root_mismatch: bool) -> Result<(), FileError> {
    let dir = HostDir::open_named(root).map_err(io("open", root))?;
    give(dir, group, on_root_mismatch).map_err(io("give to the group of the pod", root))
}

fn give(dir: HostDir, group: u32, on_root_mismatch: bool) -> io::Result<()> {
    let stat = dir.stat()?;
    if on_root_mismatch && stat.st_gid == group && stat.st_mode & 0o2770 == 0o2770 {
        return Ok(());
    }
    give_dir(&dir, group)?;
    dir.walk(LIMITS, |dir, name| {
        let entry = match dir.entry(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if entry.is_symlink() {
            return Ok(None);
        }
        if entry.is_dir() {
            return match entry.into_dir() {
                Ok(dir) => give_dir(&dir, group).map(|()| Some(dir)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
        }
        if entry.stat().st_gid != group {
            entry.chown(None, Some(group))?;
        }
        // A change of group clears set-id bits. They are not said again: the file would run with the new group.
        if entry.mode() & 0o660 != 0o660 {
            entry.chmod(entry.mode() & 0o1777 | 0o660)?;
        }
        Ok(None)
    })?;
    Ok(())
}

fn give_dir(dir: &HostDir, group: u32) -> io::Result<()> {
    let stat = dir.stat()?;
    let mode = stat.st_mode & 0o7777;
    let other = stat.st_gid != group;
    if other {
        dir.chown(None, Some(group))?;
    }
    // A change of group clears the set-group bit.
    if other || mode & 0o2770 != 0o2770 {
        dir.chmod(mode | 0o2770)?;
    }
    Ok(())
}
