//! A directory entry held by an `O_PATH` descriptor: checks and changes apply to the same file, even if its name is reused.

use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{EntryError, HostDir, bits, resolve};

/// An entry of a directory, neither opened for reading nor followed.
pub struct Entry {
    fd: OwnedFd,
    stat: FileStat,
}

impl HostDir {
    /// Opens an entry of any type with `O_PATH`.
    pub fn entry(&self, name: impl AsRef<OsStr>) -> io::Result<Entry> {
        // A link that is the entry itself is held, not followed: `O_PATH` and `O_NOFOLLOW` together do that.
        let fd = self.open_with(name.as_ref(), OFlag::O_PATH, resolve())?;
        let stat = fstat(&fd)?;
        Ok(Entry { fd, stat })
    }
}

/// The type of a file.
pub(super) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Reopens an `O_PATH` descriptor if it is a regular file: opening a FIFO can block forever, and opening a device can have
/// side effects.
pub fn open_regular(held: &OwnedFd, flags: OFlag) -> io::Result<File> {
    if kind(&fstat(held)?) != SFlag::S_IFREG {
        return Err(EntryError::NotRegular.into());
    }
    // This path leads to the file that was checked, even if its name was reused.
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    Ok(nix::fcntl::open(path.as_str(), flags, Mode::empty())?.into())
}

impl Entry {
    /// Owner, mode and size at the time it was opened.
    pub fn stat(&self) -> &FileStat {
        &self.stat
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        kind(&self.stat) == SFlag::S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        kind(&self.stat) == SFlag::S_IFREG
    }

    /// Whether it is an overlayfs whiteout.
    pub fn is_whiteout(&self) -> bool {
        kind(&self.stat) == SFlag::S_IFCHR && self.stat.st_rdev == 0
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        kind(&self.stat) == SFlag::S_IFLNK
    }

    /// Permission bits, set-id bits included.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// Sets the owner. For files the kernel clears set-id bits.
    pub fn chown(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        let flags = AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW;
        Ok(fchownat(&self.fd, "", owner, group, flags)?)
    }

    /// Sets the mode. A link has none.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        if self.is_symlink() {
            return Err(EntryError::LinkMode.into());
        }
        // fchmod does not accept O_PATH descriptors; this path leads to the held file, whatever its name is now.
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(fchmodat(&self.fd, path.as_str(), bits(mode), FchmodatFlags::FollowSymlink)?)
    }

    /// The text of a symbolic link.
    pub fn read_link(&self) -> io::Result<OsString> {
        Ok(readlinkat(&self.fd, "")?)
    }

    /// Opens it for reading if it is a regular file.
    pub fn open_file(&self) -> io::Result<File> {
        open_regular(&self.fd, OFlag::O_RDONLY)
    }

    /// Opens it as a directory.
    pub fn into_dir(self) -> io::Result<HostDir> {
        HostDir::from_path(&self.fd)
    }
}
