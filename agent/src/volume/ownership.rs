//! A pod's `fsGroup` owns the files of its volumes.

use nix::unistd::{Gid, chown};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{VolumeError, io};

/// Gives a tree to a group: group may read and write, directories hand the group on. With `on_root_mismatch`
/// nothing is touched when the root already looks right.
pub fn give_to_group(root: &Path, group: u32, on_root_mismatch: bool) -> Result<(), VolumeError> {
    if on_root_mismatch {
        let meta = fs::metadata(root).map_err(io("stat", root))?;
        if meta.gid() == group && meta.mode() & 0o2770 == 0o2770 {
            return Ok(());
        }
    }
    walk(root, group)
}

fn walk(path: &Path, group: u32) -> Result<(), VolumeError> {
    let meta = fs::symlink_metadata(path).map_err(io("stat", path))?;
    if meta.is_symlink() {
        return Ok(());
    }
    if meta.gid() != group {
        chown(path, None, Some(Gid::from_raw(group))).map_err(|error| io("chown", path)(error.into()))?;
    }
    let wanted = meta.mode() & 0o7777 | if meta.is_dir() { 0o2770 } else { 0o660 };
    // A change of group clears the set-group bit: always said again.
    fs::set_permissions(path, Permissions::from_mode(wanted)).map_err(io("chmod", path))?;
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(io("read", path))?.flatten() {
            walk(&entry.path(), group)?;
        }
    }
    Ok(())
}
