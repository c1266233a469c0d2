//! A part of a volume, found without ever leaving the volume, and pinned by a bind mount so that what is mounted
//! into the container is what was checked.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Refuses what could leave the volume by its text alone.
pub fn validate(sub_path: &str) -> Result<(), String> {
    if Path::new(sub_path).is_absolute() {
        return Err(format!("subPath {sub_path:?} must not be an absolute path"));
    }
    if Path::new(sub_path).components().any(|part| part == Component::ParentDir) {
        return Err(format!("subPath {sub_path:?} must not contain '..'"));
    }
    Ok(())
}

fn open_inside(root: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Opens the part, making directories that are missing with the volume root's mode.
fn open_or_create(volume: &Path, sub_path: &str) -> Result<OwnedFd, String> {
    let failed = |what: &str, error: Errno| {
        format!("failed to prepare subPath {sub_path:?} of volume {}: {what}: {error}", volume.display())
    };
    let root = nix::fcntl::open(volume, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|error| failed("open", error))?;
    let path = Path::new(sub_path);
    match open_inside(&root, path, OFlag::empty()) {
        Ok(found) => return Ok(found),
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(failed("open", error)),
    }
    let mode = fs::metadata(volume).map(|meta| meta.permissions().mode() & 0o777).unwrap_or(0o755);
    let mut at = PathBuf::new();
    for part in path.components() {
        let parent = if at.as_os_str().is_empty() { PathBuf::from(".") } else { at.clone() };
        at.push(part);
        let parent =
            open_inside(&root, &parent, OFlag::O_DIRECTORY).map_err(|error| failed("open", error))?;
        match mkdirat(&parent, Path::new(part.as_os_str()), Mode::from_bits_truncate(mode)) {
            Ok(()) => {
                // The umask narrowed it.
                let made =
                    open_inside(&root, &at, OFlag::O_DIRECTORY).map_err(|error| failed("open", error))?;
                let own = PathBuf::from(format!("/proc/self/fd/{}", made.as_raw_fd()));
                let _ = fs::set_permissions(&own, fs::Permissions::from_mode(mode));
            }
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(failed("mkdir", error)),
        }
    }
    open_inside(&root, path, OFlag::empty()).map_err(|error| failed("open", error))
}

/// Pins a part of a volume at `pin`; the path to mount into the container.
pub fn pin(volume: &Path, sub_path: &str, pin: &Path) -> Result<PathBuf, String> {
    validate(sub_path)?;
    let found = open_or_create(volume, sub_path)?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let directory = fs::metadata(&source).map_err(|error| error.to_string())?.is_dir();
    while umount2(pin, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    let made = match pin.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    };
    made.and_then(|()| {
        if directory {
            fs::create_dir_all(pin)
        } else {
            OpenOptions::new().create(true).append(true).open(pin).map(|_| ())
        }
    })
    .map_err(|error| format!("failed to create {}: {error}", pin.display()))?;
    mount(Some(&source), pin, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .map_err(|error| format!("failed to bind subPath {sub_path:?} on {}: {error}", pin.display()))?;
    Ok(pin.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_that_leaves_the_volume() {
        for (path, ok) in [("a/b", true), ("a..b", true), ("/a", false), ("..", false), ("a/../b", false)] {
            assert_eq!(validate(path).is_ok(), ok, "{path}");
        }
    }

    #[test]
    fn symlinks_that_leave_the_volume() {
        let temp = tempfile::tempdir().unwrap();
        let volume = temp.path().join("v");
        fs::create_dir_all(volume.join("in")).unwrap();
        std::os::unix::fs::symlink("in", volume.join("fine")).unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("out")).unwrap();
        std::os::unix::fs::symlink("../..", volume.join("up")).unwrap();
        assert!(open_or_create(&volume, "fine").is_ok());
        assert!(open_or_create(&volume, "new/deep").is_ok());
        assert!(volume.join("new/deep").is_dir());
        for bad in ["out", "out/passwd", "up", "up/x"] {
            assert!(open_or_create(&volume, bad).is_err(), "{bad}");
        }
    }
}
