//! Mounts by descriptors: a path that somebody changes meanwhile cannot lead elsewhere.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libcontainer::syscall::linux::{
    AT_EMPTY_PATH, AT_RECURSIVE, FSCONFIG_CMD_CREATE, FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING,
    MOUNT_ATTR_RDONLY, MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH, MountAttr,
};
use libcontainer::syscall::syscall::create_syscall;
use libcontainer::syscall::{Syscall, SyscallError};
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

const OPEN_TREE_CLONE: u32 = 1;
const OPEN_TREE_CLOEXEC: u32 = libc::O_CLOEXEC as u32;

/// Opens a place in the file system, without opening what is there.
pub fn place(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// Opens a place in a container. Links of the kernel, such as those of open files in `/proc`, could lead out of it: they fail with
/// `ELOOP`.
pub fn place_inside(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(AT_FDCWD, path, how)?.into())
}

/// A mount of its own of what is at a place, not attached yet.
pub fn clone(place: &File, recursive: bool) -> Result<OwnedFd, SyscallError> {
    let below = if recursive { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | below;
    create_syscall().open_tree(place.as_raw_fd(), Some(""), flags)
}

/// Attaches a mount.
pub fn attach(tree: &OwnedFd, place: &File) -> Result<(), SyscallError> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    create_syscall().move_mount(tree.as_fd(), None, place.as_fd(), None, flags)
}

/// Makes a mount read-only; its other flags, and mounts below it, stay.
pub fn set_read_only(mount: BorrowedFd<'_>) -> Result<(), SyscallError> {
    let change = MountAttr { attr_set: MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    create_syscall().mount_setattr(mount, Path::new(""), AT_EMPTY_PATH, &change, size_of::<MountAttr>())
}

/// A read-only file system in memory, not attached yet.
pub fn empty_directory(label: Option<&str>) -> Result<OwnedFd, SyscallError> {
    let kernel: Box<dyn Syscall> = create_syscall();
    let context = kernel.fsopen(Some("tmpfs"), 0)?;
    let set = |command: u64, key: Option<&str>, value: Option<&str>| {
        kernel.fsconfig(context.as_fd(), command as u32, key, value, 0)
    };
    set(FSCONFIG_SET_STRING, Some("source"), Some("tmpfs"))?;
    set(FSCONFIG_SET_FLAG, Some("ro"), None)?;
    if let Some(label) = label {
        set(FSCONFIG_SET_STRING, Some("context"), Some(label))?;
    }
    set(FSCONFIG_CMD_CREATE, None, None)?;
    kernel.fsmount(context.as_fd(), 0, Some(MOUNT_ATTR_RDONLY))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_the_kernel_are_not_followed_in_a_container() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::create(dir.path().join("file")).unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        assert!(place_inside(&dir.path().join("link")).is_ok());
        let magic = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        symlink(&magic, dir.path().join("magic")).unwrap();
        assert!(place(&magic).is_ok());
        for path in [magic, dir.path().join("magic")] {
            assert_eq!(place_inside(&path).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        }
        assert_eq!(place_inside(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
