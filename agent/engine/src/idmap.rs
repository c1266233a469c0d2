//! Idmapped mounts: show a tree with the ids of a user namespace, without changing ownership on disk.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::paths::private_dir;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Creates `at` and mounts `source` recursively there, idmapped to `userns`.
///
/// Fails with `EINVAL` on a filesystem without support for idmapped mounts.
pub fn mount(source: &Path, at: &Path, userns: &File) -> io::Result<()> {
    if source.is_dir() {
        private_dir(at)?;
    } else {
        at.parent().map_or(Ok(()), private_dir)?;
        File::create(at)?;
    }
    let tree = clone_tree(source)?;
    map(&tree, userns)?;
    attach(&tree, at)
}

fn path_of(path: &Path) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn clone_tree(source: &Path) -> io::Result<OwnedFd> {
    let path = path_of(&fs::canonicalize(source)?)?;
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC as libc::c_uint;
    // SAFETY: `path` is a C string that outlives the call; the descriptor returned is ours alone.
    #[allow(unsafe_code)]
    unsafe {
        let fd = checked(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

fn map(tree: &OwnedFd, userns: &File) -> io::Result<()> {
    let attr =
        MountAttr { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns_fd: userns.as_raw_fd() as u64 };
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | AT_RECURSIVE;
    // SAFETY: `attr` is plain data of the size given and outlives the call.
    #[allow(unsafe_code)]
    unsafe {
        checked(libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        ))?;
    }
    Ok(())
}

fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let path = path_of(at)?;
    // SAFETY: both paths are C strings that outlive the call.
    #[allow(unsafe_code)]
    unsafe {
        checked(libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        ))?;
    }
    Ok(())
}
