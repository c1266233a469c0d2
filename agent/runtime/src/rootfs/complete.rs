//! The last changes to the mounts of a container, in the container, as its root. Nothing of the image runs yet, but containers
//! that share volumes with it may run.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};

use super::failure::{RootfsError, failed, file, kernel};
use super::{ASIDE, DEV, Rootfs, null, tree};

const NONE: Option<&str> = None;

impl Rootfs {
    /// Completes the mounts; everything can still be written.
    pub fn complete(&self) -> Result<(), RootfsError> {
        // While `/dev` has what libcontainer made.
        null::open_streams()?;
        if self.shared {
            let root = Path::new("/");
            mount(NONE, root, NONE, MsFlags::MS_PRIVATE, NONE).map_err(kernel("propagation of", root))?;
        }
        if self.bound_dev {
            move_dev()?;
        } else {
            link_core()?;
            self.close_device_directories()?;
        }
        self.propagation.set().map_err(kernel("mount propagation", Path::new("/")))?;
        make_directory(&self.cwd)
    }

    /// Takes from others the right to write that libcontainer gives to everybody. Volumes are left alone.
    fn close_device_directories(&self) -> Result<(), RootfsError> {
        let dev = fs::symlink_metadata(DEV).map_err(file("stat", Path::new(DEV)))?.dev();
        for path in &self.device_directories {
            let Ok(found) = fs::symlink_metadata(path) else { continue };
            if found.is_dir() && found.dev() == dev && found.mode() & 0o7777 == 0o777 {
                fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(file("chmod", path))?;
            }
        }
        Ok(())
    }

    /// Makes read-only and hides what has to be.
    pub fn restrict(&self) -> Result<(), RootfsError> {
        for path in &self.read_only {
            let mount = tree::place(path).map_err(file("open", path))?;
            tree::set_read_only(mount.as_fd()).map_err(failed("read-only mount", path))?;
        }
        for path in &self.read_only_paths {
            let Some(place) = existing(path)? else { continue };
            let cover = tree::clone(&place, true).map_err(failed("read-only path", path))?;
            tree::set_read_only(cover.as_fd()).map_err(failed("read-only path", path))?;
            tree::attach(&cover, &place).map_err(failed("read-only path", path))?;
        }
        if self.masked_paths.is_empty() {
            return Ok(());
        }
        let null = null::device()?;
        for path in &self.masked_paths {
            let Some(place) = existing(path)? else { continue };
            let found = place.metadata().map_err(file("stat", path))?;
            let cover = match found.is_dir() {
                true => tree::empty_directory(self.label.as_deref()),
                false => tree::clone(&null, false),
            };
            let cover = cover.map_err(failed("masked path", path))?;
            tree::attach(&cover, &place).map_err(failed("masked path", path))?;
        }
        Ok(())
    }
}

/// A place, unless nothing is there.
fn existing(path: &Path) -> Result<Option<File>, RootfsError> {
    match tree::place(path) {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(RootfsError::File { step: "open", path: path.to_owned(), source }),
    }
}

/// Makes a directory and those above it. The pod or the image chooses the path: links of the kernel, such as those of open files in
/// `/proc`, could lead out of the container, and are not followed.
fn make_directory(path: &Path) -> Result<(), RootfsError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let mut at = OwnedFd::from(File::open("/").map_err(file("open", Path::new("/")))?);
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => Path::new(name),
            Component::ParentDir => Path::new(".."),
            _ => continue,
        };
        at = match openat2(&at, name, how) {
            Err(Errno::ENOENT) => match mkdirat(&at, name, Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EEXIST) => openat2(&at, name, how),
                Err(errno) => Err(errno),
            },
            found => found,
        }
        .map_err(kernel("mkdir", path))?;
    }
    Ok(())
}

/// Moves the mounts of `/dev` to where they belong. The root mount must not be shared.
fn move_dev() -> Result<(), RootfsError> {
    let aside = Path::new(ASIDE);
    umount2(DEV, MntFlags::MNT_DETACH).map_err(kernel("umount", Path::new(DEV)))?;
    mount(Some(aside), DEV, NONE, MsFlags::MS_MOVE, NONE).map_err(kernel("move", aside))?;
    fs::remove_dir(aside).map_err(file("remove", aside))
}

/// libcontainer names the link to the kernel's memory as no other runtime does.
fn link_core() -> Result<(), RootfsError> {
    let (theirs, link, memory) = (Path::new("/dev/kcore"), Path::new("/dev/core"), Path::new("/proc/kcore"));
    if fs::read_link(theirs).ok().as_deref() != Some(memory) {
        return Ok(());
    }
    fs::remove_file(theirs).map_err(file("remove", theirs))?;
    match symlink(memory, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(file("symlink", link)),
    }
}
