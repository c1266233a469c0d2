//! Regular files of a directory. Devices, FIFOs and links are rejected.

use nix::fcntl::{OFlag, OpenHow, openat2};
use nix::unistd::{Gid, Uid, fchown};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::entry::open_regular;
use super::{EntryError, HostDir, TRIES, bits, busy, names, resolve, single};

impl HostDir {
    /// Opens an existing file.
    fn file(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        // Opening a device or FIFO can have side effects, so the type is checked first.
        open_regular(&self.open_with(name, OFlag::O_PATH, resolve())?, flags)
            .map_err(|error| EntryError::File { name: name.to_owned(), error }.into())
    }

    /// Opens a file, which is made with mode `mode` when it is missing.
    fn file_or_new(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        for _ in 0..TRIES {
            match self.file(name, flags) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
            match self.create_file(name, flags, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Err(busy(name))
    }

    fn create_file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let always = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags | always).resolve(resolve()).mode(bits(mode));
        Ok(openat2(&self.0, single(name)?, how)?.into())
    }

    /// Opens a file for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.file(name.as_ref(), OFlag::O_RDONLY)
    }

    /// Opens a file for reading by a relative path, no component of which is a link.
    pub fn open_file_below(&self, path: &Path) -> io::Result<File> {
        let names = names(path)?;
        let (name, parents) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = self.try_clone()?;
        for parent in parents {
            at = at.open_dir(parent)?;
        }
        at.open_file(name)
    }

    /// Opens a file for appending; a missing one is made with mode `mode`.
    pub fn append(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.file_or_new(name.as_ref(), OFlag::O_WRONLY | OFlag::O_APPEND, mode)
    }

    /// Makes a file that must not be there yet, for writing.
    pub fn new_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.create_file(name.as_ref(), OFlag::O_WRONLY, mode)
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
        // chmod, because the umask may have removed bits.
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Replaces the content of a file in place, so that bind mounts of it see the change.
    pub fn rewrite(&self, name: impl AsRef<OsStr>, data: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.file_or_new(name.as_ref(), OFlag::O_WRONLY, mode & 0o700)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
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
        // Opening alone has effects on a device; a FIFO shows whether it was opened.
        let opened = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        opened.add_watch(&temp.path().join("fifo"), AddWatchFlags::IN_OPEN).unwrap();
        assert!(dir.open_file("fifo").is_err());
        assert!(dir.append("fifo", 0o600).is_err());
        assert!(dir.rewrite("fifo", b"", 0o600).is_err());
        assert_eq!(opened.read_events().unwrap_err(), nix::errno::Errno::EAGAIN);
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
