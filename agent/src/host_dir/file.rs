//! Regular files of a directory. Devices, FIFOs and links of the same name are refused.

use nix::fcntl::{OFlag, OpenHow, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchown};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::entry::kind;
use super::{HostDir, bits, names, resolve, single};

impl HostDir {
    fn file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        // A FIFO must not make the agent wait, nor a terminal become its own.
        let always = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut how = OpenHow::new().flags(flags | always).resolve(resolve());
        if flags.contains(OFlag::O_CREAT) {
            how = how.mode(bits(mode));
        }
        let fd = openat2(&self.0, single(name)?, how)?;
        regular(&fstat(&fd)?, name)?;
        Ok(fd.into())
    }

    /// Opens a file for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.file(name.as_ref(), OFlag::O_RDONLY, 0)
    }

    /// Opens a file for reading by a relative path, no component of which is a link.
    pub fn open_file_below(&self, path: &Path) -> io::Result<File> {
        let names = names(path)?;
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = self.again()?;
        for parent in parents {
            at = at.open_dir(parent)?;
        }
        at.open_file(name)
    }

    /// Opens a file for appending; a missing one is made with mode `mode`.
    pub fn append(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.file(name.as_ref(), OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT, mode)
    }

    /// Makes a file that must not be there yet, for writing.
    pub fn new_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.file(name.as_ref(), OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode)
    }

    /// Makes a file that must not be there yet, with exactly this content, owner and mode.
    pub fn write_new(
        &self,
        name: impl AsRef<OsStr>,
        data: &[u8],
        (owner, group): (Option<u32>, Option<u32>),
        mode: u32,
    ) -> io::Result<()> {
        let mut file = self.new_file(name, 0o600)?;
        file.write_all(data)?;
        if owner.is_some() || group.is_some() {
            fchown(&file, owner.map(Uid::from_raw), group.map(Gid::from_raw))?;
        }
        // The umask must not narrow what was asked for.
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Replaces the content of a file in place: those who have it mounted see the change.
    pub fn rewrite(&self, name: impl AsRef<OsStr>, data: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.file(name.as_ref(), OFlag::O_WRONLY | OFlag::O_CREAT, mode & 0o700)?;
        file.set_len(0)?;
        file.write_all(data)?;
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// At most the first `limit` bytes of a file.
    pub fn read_head(&self, name: impl AsRef<OsStr>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(name)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn regular(stat: &FileStat, name: &OsStr) -> io::Result<()> {
    if kind(stat) == SFlag::S_IFREG {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a regular file")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn files_behind_links_are_neither_read_nor_written() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("outside"), "kept").unwrap();
        fs::create_dir(temp.path().join("in")).unwrap();
        symlink("../outside", temp.path().join("in/link")).unwrap();
        symlink("../missing", temp.path().join("in/dangling")).unwrap();
        let dir = HostDir::open(&temp.path().join("in")).unwrap();
        for name in ["link", "dangling"] {
            assert!(dir.open_file(name).is_err());
            assert!(dir.append(name, 0o600).is_err());
            assert!(dir.rewrite(name, b"x", 0o600).is_err());
            assert!(dir.new_file(name, 0o600).is_err());
            assert!(dir.read_head(name, 10).is_err());
        }
        assert_eq!(fs::read_to_string(temp.path().join("outside")).unwrap(), "kept");
        assert!(!temp.path().join("missing").exists());
    }

    #[test]
    fn a_fifo_makes_nobody_wait() {
        let temp = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&temp.path().join("fifo"), bits(0o600)).unwrap();
        let dir = HostDir::open(temp.path()).unwrap();
        assert!(dir.open_file("fifo").is_err());
        assert!(dir.append("fifo", 0o600).is_err());
    }

    #[test]
    fn content_and_mode_are_exact() {
        let temp = tempfile::tempdir().unwrap();
        let dir = HostDir::open(temp.path()).unwrap();
        dir.write_new("a", b"one", (None, None), 0o666).unwrap();
        assert!(dir.write_new("a", b"two", (None, None), 0o666).is_err(), "it is there");
        dir.rewrite("a", b"2", 0o640).unwrap();
        dir.rewrite("b", b"new", 0o666).unwrap();
        let mode = |name: &str| fs::metadata(temp.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a"), mode("b")), (0o640, 0o666));
        assert_eq!(dir.read_head("a", 10).unwrap(), b"2");
        assert_eq!(dir.read_head("b", 2).unwrap(), b"ne");
        dir.make_dirs(Path::new("d/e"), 0o755).unwrap().rewrite("f", b"deep", 0o600).unwrap();
        assert!(dir.open_file_below(Path::new("d/e/f")).is_ok());
        assert!(dir.open_file_below(Path::new("d/../a")).is_err());
    }
}
