//! Removes volumes: unmounts innermost first, then deletes directories; never deletes through a mount.

use nix::mount::{MntFlags, umount2};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{FileError, io};
use coracle_host_dir::HostDir;

/// Mount points at or under a path, innermost first.
pub fn mounts_under(root: &Path) -> Vec<PathBuf> {
    #[allow(clippy::disallowed_methods, reason = "the kernel's own file")]
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return vec![] };
    parse(&table, root)
}

fn parse(table: &str, root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
        .filter(|path| path.starts_with(root))
        .collect();
    found.reverse();
    found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    found
}

/// Spaces and the like are octal in the mount table.
fn unescape(field: &str) -> String {
    let mut out = Vec::new();
    let bytes = field.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| bytes[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether something is mounted exactly here.
pub fn is_mount(path: &Path) -> bool {
    mounts_under(path).iter().any(|mount| mount == path)
}

/// Unmounts everything under a tree and removes it. Repeatable; refuses to delete through a mount that stays.
///
/// The mount table names every mount of the node, so it is read only when a mount was in the way.
pub fn remove_tree(root: &Path) -> Result<(), FileError> {
    let (parent, name) = match HostDir::of_file(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(io("open", root))?,
    };
    match parent.remove_tree(&name) {
        Err(error) if is_mounted(&error) => {}
        other => return other.map_err(io("remove", root)),
    }
    for mount in mounts_under(root) {
        umount2(&mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|error| io("unmount", &mount)(error.into()))?;
    }
    parent.remove_tree(&name).map_err(io("remove", root))
}

/// Whether a removal failed at a mount point: on the way through it, or because it cannot be unlinked.
fn is_mounted(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::CrossesDevices | ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs;

    #[test]
    fn innermost_first_and_only_inside() {
        let table = "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /p/a rw - tmpfs x rw\n3 2 0:3 / /p/a/b\\040c rw - tmpfs x rw\n\
            4 1 0:4 / /pp rw - tmpfs x rw\n5 2 0:5 / /p/a rw - tmpfs x rw\n";
        assert_eq!(parse(table, Path::new("/p")), [PathBuf::from("/p/a/b c"), "/p/a".into(), "/p/a".into()]);
    }

    #[test]
    fn removes_and_repeats() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("pod");
        fs::create_dir_all(root.join("volumes/x")).unwrap();
        remove_tree(&root).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.exists());
    }
}
