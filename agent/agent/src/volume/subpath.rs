//! subPath mounts: resolves a path without leaving the volume and pins it by a bind mount, so that the checked file is
//! the one that is mounted.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use coracle_host_dir::{HostDir, names};

/// Why a part of a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// Relative to the volume, it would be another path.
    #[error("subPath {sub_path:?} must not be an absolute path")]
    Absolute {
        /// The subPath as given.
        sub_path: String,
    },
    /// It could leave the volume.
    #[error("subPath {sub_path:?} must not contain '..'")]
    Parent {
        /// The subPath as given.
        sub_path: String,
    },
    /// It leaves the volume through a link, or was neither found nor made.
    #[error("failed to prepare subPath {sub_path:?} of volume {volume}: {action}: {source}")]
    Prepare {
        /// The subPath as given.
        sub_path: String,
        /// Directory of the volume.
        volume: PathBuf,
        /// The operation.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// What was found cannot be examined.
    #[error(transparent)]
    Stat(Errno),
    /// There is nothing to mount it on.
    #[error("failed to create {pin}: {source}")]
    CreatePin {
        /// Where it was to be mounted.
        pin: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused the mount.
    #[error("failed to bind subPath {sub_path:?} on {pin}: {source}")]
    Bind {
        /// The subPath as given.
        sub_path: String,
        /// Where it was to be mounted.
        pin: PathBuf,
        /// The cause.
        source: Errno,
    },
}

/// Refuses what could leave the volume by its text alone.
pub fn validate(sub_path: &str) -> Result<(), SubPathError> {
    if Path::new(sub_path).is_absolute() {
        return Err(SubPathError::Absolute { sub_path: sub_path.to_owned() });
    }
    if Path::new(sub_path).components().any(|part| part == Component::ParentDir) {
        return Err(SubPathError::Parent { sub_path: sub_path.to_owned() });
    }
    Ok(())
}

/// How often a path is resolved again that changes meanwhile.
const TRIES: usize = 16;

/// Links are followed as long as they stay in the volume: a part may be named through one.
fn open_inside(root: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 0..TRIES {
        match openat2(root, path, how) {
            // Something was renamed while the kernel went up a `..` in a link.
            Err(Errno::EAGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// Opens the part, making directories that are missing with the volume root's mode.
fn open_or_create(volume: &Path, sub_path: &str) -> Result<OwnedFd, SubPathError> {
    let failed = |action: &'static str, source: io::Error| SubPathError::Prepare {
        sub_path: sub_path.to_owned(),
        volume: volume.to_owned(),
        action,
        source,
    };
    let root = nix::fcntl::open(volume, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|error| failed("open", error.into()))?;
    let path = Path::new(sub_path);
    match open_inside(&root, path) {
        Ok(found) => return Ok(found),
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(failed("open", error.into())),
    }
    let mode = fstat(&root).map(|stat| stat.st_mode & 0o777).unwrap_or(0o755);
    // Down to the last directory that is there, through links that stay inside; from there on nothing is a link.
    let names = names(path).map_err(|error| failed("open", error))?;
    let found = |count: usize| match count {
        0 => open_inside(&root, Path::new(".")),
        count => open_inside(&root, &names[..count].iter().collect::<PathBuf>()),
    };
    let (mut count, mut at) = (names.len(), Err(Errno::ENOENT));
    while count > 0 && matches!(at, Err(Errno::ENOENT)) {
        count -= 1;
        at = found(count);
    }
    let at = at.map_err(|error| failed("open", error.into()))?;
    let at = HostDir::from_path(&at).map_err(|error| failed("open", error))?;
    let made = at.make_dirs(&names[count..].iter().collect::<PathBuf>(), mode);
    made.map(OwnedFd::from).map_err(|error| failed("mkdir", error))
}

/// Pins a part of a volume at `pin`; the path to mount into the container.
pub fn pin(volume: &Path, sub_path: &str, pin: &Path) -> Result<PathBuf, SubPathError> {
    validate(sub_path)?;
    let found = open_or_create(volume, sub_path)?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let stat = fstat(&found).map_err(SubPathError::Stat)?;
    let directory = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    while umount2(pin, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    make_pin(pin, directory).map_err(|source| SubPathError::CreatePin { pin: pin.to_owned(), source })?;
    mount(Some(&source), pin, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).map_err(
        |source| SubPathError::Bind { sub_path: sub_path.to_owned(), pin: pin.to_owned(), source },
    )?;
    Ok(pin.to_owned())
}

/// What the part is mounted on: a directory for a directory, a file for anything else.
fn make_pin(pin: &Path, directory: bool) -> io::Result<()> {
    let (parent, name) = pin.parent().zip(pin.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let parent = HostDir::create(parent)?;
    let is_dir = parent.entry(name).map(|entry| entry.is_dir());
    if is_dir.is_ok_and(|is_dir| is_dir != directory) {
        parent.remove_tree(name)?;
    }
    if directory { parent.make_dir(name, 0o700).map(drop) } else { parent.append(name, 0o600).map(drop) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs;

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
        assert!(open_or_create(&volume, "fine/also/deep").is_ok());
        assert!(volume.join("in/also/deep").is_dir());
        assert!(volume.join("new/deep").is_dir());
        for bad in ["out", "out/passwd", "up", "up/x"] {
            assert!(open_or_create(&volume, bad).is_err(), "{bad}");
        }
    }
}
