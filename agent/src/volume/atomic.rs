//! Writes a volume's files so that a reader sees either all old or all new ones.
//!
//! Files live in a dated directory, `..data` is a symlink to it that is replaced by a rename, and each visible name
//! is a symlink through `..data`. A crash at any point leaves the old view or the new one.

use nix::unistd::{Gid, Uid, chown};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::content::Payload;
use super::{VolumeError, io};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";

/// Makes `dir` show exactly `payload`; says whether anything changed. Safe to repeat.
pub fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> Result<bool, VolumeError> {
    fs::create_dir_all(dir).map_err(io("create", dir))?;
    let mode = if group.is_some() { 0o2775 } else { 0o755 };
    fs::set_permissions(dir, Permissions::from_mode(mode)).map_err(io("chmod", dir))?;
    own(dir, None, group)?;
    let old = fs::read_link(dir.join(DATA)).ok();
    let unchanged = old.as_ref().is_some_and(|old| same(&dir.join(old), payload, group));
    if unchanged {
        links(dir, payload)?;
        return Ok(false);
    }
    let stamp = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let name = format!("..{stamp}.{}", rand::random::<u32>());
    let fresh = dir.join(&name);
    fs::create_dir(&fresh).map_err(io("create", &fresh))?;
    fs::set_permissions(&fresh, Permissions::from_mode(mode)).map_err(io("chmod", &fresh))?;
    own(&fresh, None, group)?;
    for (path, file) in payload {
        let target = fresh.join(path);
        if let Some(parent) = target.parent().filter(|parent| *parent != fresh) {
            fs::create_dir_all(parent).map_err(io("create", parent))?;
        }
        fs::write(&target, &file.data).map_err(io("write", &target))?;
        // The umask must not narrow what the pod asked for.
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        own(&target, file.owner, group)?;
        fs::set_permissions(&target, Permissions::from_mode(mode)).map_err(io("chmod", &target))?;
    }
    let swap = dir.join(DATA_NEW);
    let _ = fs::remove_file(&swap);
    symlink(&name, &swap).map_err(io("symlink", &swap))?;
    fs::rename(&swap, dir.join(DATA)).map_err(io("rename", &swap))?;
    links(dir, payload)?;
    remove_stale(dir, &name);
    Ok(true)
}

fn own(path: &Path, owner: Option<u32>, group: Option<u32>) -> Result<(), VolumeError> {
    if owner.is_none() && group.is_none() {
        return Ok(());
    }
    chown(path, owner.map(Uid::from_raw), group.map(Gid::from_raw))
        .map_err(|error| io("chown", path)(std::io::Error::from(error)))
}

/// Visible names: the first component of each path, linked through `..data`.
fn links(dir: &Path, payload: &Payload) -> Result<(), VolumeError> {
    let wanted: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &wanted {
        let link = dir.join(name);
        let to = PathBuf::from(DATA).join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&to) {
            let _ = fs::remove_file(&link);
            symlink(&to, &link).map_err(io("symlink", &link))?;
        }
    }
    for entry in fs::read_dir(dir).map_err(io("read", dir))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !wanted.contains(name.as_ref()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Old dated directories, of this update or of one that a crash interrupted.
fn remove_stale(dir: &Path, current: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("..") && name != DATA && name != current {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
}

fn same(dir: &Path, payload: &Payload, group: Option<u32>) -> bool {
    let mut files = Vec::new();
    if collect(dir, dir, &mut files).is_none() || files.len() != payload.len() {
        return false;
    }
    files.iter().all(|path| {
        let Some(file) = payload.get(path) else { return false };
        let full = dir.join(path);
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        fs::metadata(&full).is_ok_and(|meta| {
            meta.mode() & 0o777 == mode
                && file.owner.is_none_or(|owner| owner == meta.uid())
                && group.is_none_or(|group| group == meta.gid())
        }) && fs::read(&full).is_ok_and(|data| data == file.data)
    })
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<String>) -> Option<()> {
    for entry in fs::read_dir(dir).ok()? {
        let path = entry.ok()?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.push(path.strip_prefix(root).ok()?.to_str()?.to_owned());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::volume::content::File;

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        files
            .iter()
            .map(|(path, data, mode)| {
                ((*path).to_owned(), File { data: data.as_bytes().to_vec(), mode: *mode, owner: None })
            })
            .collect()
    }

    #[test]
    fn replaces_everything_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("v");
        assert!(write(&dir, &payload(&[("a", "1", 0o644), ("d/e/f", "2", 0o400)]), None).unwrap());
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(dir.join("d/e/f")).unwrap(), "2");
        assert_eq!(fs::metadata(dir.join("d/e/f")).unwrap().mode() & 0o777, 0o400);
        let first = fs::read_link(dir.join(DATA)).unwrap();
        assert!(
            !write(&dir, &payload(&[("a", "1", 0o644), ("d/e/f", "2", 0o400)]), None).unwrap(),
            "unchanged"
        );
        assert_eq!(fs::read_link(dir.join(DATA)).unwrap(), first);
        let open = fs::File::open(dir.join("a")).unwrap();
        assert!(write(&dir, &payload(&[("a", "3", 0o644)]), None).unwrap());
        drop(open);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
        assert!(!dir.join("d").exists() && !dir.join(&first).exists());
        assert!(write(&dir, &Payload::new(), None).unwrap());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "only ..data and its directory");
    }

    #[test]
    fn clears_what_a_crash_left() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        fs::create_dir(dir.join("..2020_01_01_00_00_00.7")).unwrap();
        symlink("nowhere", dir.join(DATA_NEW)).unwrap();
        write(dir, &payload(&[("a", "1", 0o600)]), None).unwrap();
        assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
    }
}
