//! The last changes to the mounts of a container, in the container, as its root. Nothing of the image runs yet, but containers
//! that share volumes with it may run.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::failure::{RootfsError, failed, file, kernel};
use super::{DEV, PROC, Rootfs, null, tree};

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
        match &self.aside {
            Some(aside) => move_dev(aside)?,
            None => {
                link_core()?;
                self.close_device_directories()?;
            }
        }
        self.propagation.set().map_err(kernel("mount propagation", Path::new("/")))?;
        make_directory(&self.cwd)
    }

    /// Takes from others the right to write that libcontainer gives to everybody. Volumes are left alone.
    fn close_device_directories(&self) -> Result<(), RootfsError> {
        if self.device_directories.is_empty() {
            return Ok(());
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let dev = File::options().read(true).custom_flags(flags).open(DEV);
        let dev = dev.map_err(file("open", Path::new(DEV)))?;
        for path in &self.device_directories {
            let Ok(below) = path.strip_prefix(DEV) else { continue };
            close_directory(&dev, below).map_err(kernel("chmod", path))?;
        }
        Ok(())
    }

    /// Makes read-only and hides what has to be.
    pub fn restrict(&self) -> Result<(), RootfsError> {
        if self.proc {
            check_proc(Path::new(PROC))?;
        }
        for path in &self.read_only {
            let mount = tree::place_inside(path).map_err(file("open", path))?;
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

/// Takes from others the right to write a directory in `/dev`, if it is as libcontainer makes it: not behind a link or a mount.
fn close_directory(dev: &File, below: &Path) -> nix::Result<()> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let resolve =
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    let found = match openat2(dev, below, OpenHow::new().flags(flags).resolve(resolve)) {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => return Ok(()),
        found => found?,
    };
    if fstat(&found)?.st_mode & 0o7777 == 0o777 {
        fchmod(&found, Mode::from_bits_truncate(0o755))?;
    }
    Ok(())
}

/// Checks that the file system of the kernel's processes is at a path, which is no link.
fn check_proc(path: &Path) -> Result<(), RootfsError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let proc = openat2(AT_FDCWD, path, how).map_err(kernel("open", path))?;
    let found = fstatfs(&proc).map_err(kernel("stat", path))?;
    if found.filesystem_type() == PROC_SUPER_MAGIC { Ok(()) } else { Err(RootfsError::NotProc) }
}

/// A place, unless nothing is there.
fn existing(path: &Path) -> Result<Option<File>, RootfsError> {
    match tree::place_inside(path) {
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
fn move_dev(aside: &Path) -> Result<(), RootfsError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn paths_are_hidden_only_in_a_proc_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert!(check_proc(Path::new(PROC)).is_ok());
        assert!(matches!(check_proc(&dir), Err(RootfsError::NotProc)));
        symlink(PROC, dir.join("proc")).unwrap();
        assert!(matches!(check_proc(&dir.join("proc")), Err(RootfsError::File { .. })));
    }

    #[test]
    fn directories_of_devices_are_closed_but_not_those_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev");
        let made = ["dev", "dev/net", "dev/sticky", "volume", "volume/net"].map(|path| dir.path().join(path));
        for path in &made {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(dev.join("sticky"), Permissions::from_mode(0o1777)).unwrap();
        fs::write(dev.join("file"), "").unwrap();
        symlink("../volume", dev.join("link")).unwrap();
        let top = File::open(&dev).unwrap();
        for below in ["net", "sticky", "file", "missing", "link", "link/net", "../volume"] {
            close_directory(&top, Path::new(below)).unwrap();
        }
        let modes = made.map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o7777);
        assert_eq!(modes, [0o777, 0o755, 0o1777, 0o777, 0o777]);
    }
}
