//! Block volumes: a driver publishes a device node instead of a directory.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::error::CsiError;
use super::names::{Paths, ensure_dir};

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CsiError {
    let path = path.to_owned();
    move |source| CsiError::Directory { action, path, source }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Makes the directory in which a driver makes the device node.
pub(super) fn prepare(target: &Path) -> Result<(), CsiError> {
    ensure_dir(parent(target)).map_err(failed("mkdir", parent(target)))
}

/// Checks what a driver has published, and links it into the directory of the pod.
pub(super) fn published(paths: &Paths, uid: &str, name: &str) -> Result<(), CsiError> {
    let target = paths.device_target(uid, name);
    let found = std::fs::metadata(&target).map_err(failed("stat", &target))?;
    if !found.file_type().is_block_device() {
        return Err(CsiError::NotDevice { path: target });
    }
    let link = paths.device_link(uid, name);
    ensure_dir(parent(&link)).map_err(failed("mkdir", parent(&link)))?;
    match std::os::unix::fs::symlink(&target, &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("symlink", &link)(error)),
        _ => Ok(()),
    }
}

/// Removes the link to a device, and directories that are empty then.
pub(super) fn unlink(paths: &Paths, uid: &str, name: &str) -> Result<(), CsiError> {
    let link = paths.device_link(uid, name);
    match std::fs::remove_file(&link) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("unlink", &link)(error)),
        _ => {}
    }
    for dir in link.ancestors().skip(1).take(2) {
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

/// Removes the directory of a volume's devices after the last of them.
pub(super) fn remove_parent(target: &Path) {
    let _ = std::fs::remove_dir(parent(target));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_block_device_is_refused_and_nothing_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let target = paths.device_target("u", "pv");
        prepare(&target).unwrap();
        assert!(matches!(published(&paths, "u", "pv"), Err(CsiError::Directory { action: "stat", .. })));
        std::fs::write(&target, "").unwrap();
        let error = published(&paths, "u", "pv").unwrap_err().to_string();
        assert!(error.ends_with("publish/pv/u is not a block device"), "{error}");
        unlink(&paths, "u", "pv").unwrap();
        std::fs::remove_file(&target).unwrap();
        remove_parent(&target);
        assert!(!target.parent().unwrap().exists() && !paths.pods().join("u").exists());
    }
}
