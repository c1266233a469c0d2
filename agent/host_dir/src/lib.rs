//! Directories of the host that a pod, or another local user, can change while the agent works in them.
//!
//! A [`HostDir`] is an open descriptor. Every operation names one entry of that directory, never a path, and never
//! follows a symbolic link: whatever a container puts in place of a file or directory, root does not leave the tree.
//! [`HostDir::open`] and [`HostDir::create`] are the only ways in by path, and no component of that path may be a link.
//!
//! Depends on no other crate of the workspace.

#![forbid(unsafe_code)]
// Modules that work on files which a pod can change deny `disallowed_methods`.
#![allow(clippy::disallowed_methods)]

// Errors.
mod error;
// An entry of a directory: type, owner, mode.
mod entry;
// Files.
mod file;
// Visits every entry of a tree.
mod walk;
// Removes a tree.
mod remove;
// Disk usage of a tree.
pub mod measure;
// The agent's own directories, closed to other local users.
pub mod private;

pub use entry::{Entry, open_regular};
pub use error::EntryError;
pub use measure::{Size, UNMEASURABLE, measure};
pub use walk::{Limits, WalkError};

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Mode of directories that [`HostDir::create`] makes on the way.
pub const PRIVATE: u32 = 0o750;

/// Attempts to open an entry that is being replaced concurrently.
const TRIES: usize = 16;

/// An open directory.
///
/// ```
/// # let scratch = tempfile::tempdir()?;
/// use coracle_host_dir::HostDir;
/// let dir = HostDir::open_named(scratch.path())?;
/// dir.rewrite("greeting", b"hello", 0o644)?;
/// assert_eq!(dir.read_head("greeting", 4)?, b"hell");
/// dir.symlink("/etc/hostname", "link")?;
/// assert!(dir.open_file("link").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct HostDir(OwnedFd);

fn resolve() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

fn directory() -> OFlag {
    OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// One name: not a path, not the directory itself, not its parent.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(EntryError::Name { name: name.to_owned() }.into());
    }
    Ok(name)
}

fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}

impl HostDir {
    /// Opens a directory by its absolute path, no component of which is a symbolic link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let below = path.strip_prefix("/").map_err(|_| not_absolute(path))?;
        let top =
            nix::fcntl::open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        if below.as_os_str().is_empty() {
            return Ok(Self(openat2(&top, ".", OpenHow::new().flags(directory()))?));
        }
        Ok(Self(openat2(&top, below, OpenHow::new().flags(directory()).resolve(resolve()))?))
    }

    /// Opens a directory that an administrator named: links in its path are followed, once, here.
    pub fn open_named(path: &Path) -> io::Result<Self> {
        Self::open(&std::fs::canonicalize(path)?)
    }

    /// Reopens the directory of an `O_PATH` descriptor for reading.
    pub fn from_path(fd: &OwnedFd) -> io::Result<Self> {
        Ok(Self(openat2(fd, ".", OpenHow::new().flags(directory()).resolve(resolve()))?))
    }

    /// Opens a directory by path, and makes what is missing of it with mode [`PRIVATE`].
    pub fn create(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let (parent, name) = split(path)?;
        Self::create(parent)?.make_dir(name, PRIVATE)
    }

    /// Opens the directory that holds the file at `path`; the directory and the file's name.
    pub fn of_file(path: &Path) -> io::Result<(Self, OsString)> {
        let (parent, name) = split(path)?;
        Ok((Self::open(parent)?, name.to_owned()))
    }

    fn open_with(&self, name: &OsStr, flags: OFlag, resolve: ResolveFlag) -> io::Result<OwnedFd> {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW).resolve(resolve);
        Ok(openat2(&self.0, single(name)?, how)?)
    }

    /// Opens a directory in this one, crossing a mount if there is one.
    pub fn open_dir(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        self.open_with(name.as_ref(), directory(), resolve()).map(Self)
    }

    /// Opens a directory in this one; `EXDEV` if something is mounted there.
    pub fn open_dir_of_mount(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        self.open_with(name.as_ref(), directory(), resolve() | ResolveFlag::RESOLVE_NO_XDEV).map(Self)
    }

    /// Makes a directory that must not be there yet, with exactly this mode.
    pub fn make_new_dir(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        mkdirat(&self.0, name, bits(mode & 0o700))?;
        let made = self.open_dir_of_mount(name)?;
        made.chmod(mode)?;
        Ok(made)
    }

    /// Opens a directory, which is made with exactly this mode when it is missing.
    pub fn make_dir(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Self> {
        let name = name.as_ref();
        for _ in 0..TRIES {
            match self.open_dir(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
            match self.make_new_dir(name, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Err(busy(name))
    }

    /// Opens or makes directory after directory of a relative path.
    pub fn make_dirs(&self, path: &Path, mode: u32) -> io::Result<Self> {
        let mut at = self.try_clone()?;
        for name in names(path)? {
            at = at.make_dir(name, mode)?;
        }
        Ok(at)
    }

    /// Duplicates the descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Owner, mode and type of the directory itself.
    pub fn stat(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.0)?)
    }

    /// Sets the mode of the directory itself.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.0, bits(mode))?)
    }

    /// Sets the owner of the directory itself.
    pub fn chown(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        Ok(fchown(&self.0, owner.map(Uid::from_raw), group.map(Gid::from_raw))?)
    }

    /// What an entry is, without opening it.
    pub fn stat_entry(&self, name: impl AsRef<OsStr>) -> io::Result<FileStat> {
        let name = single(name.as_ref())?;
        Ok(nix::sys::stat::fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Makes a symbolic link. The target is not checked: the agent never follows links.
    pub fn symlink(&self, target: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(symlinkat(target.as_ref(), &self.0, single(name.as_ref())?)?)
    }

    /// The text of a symbolic link.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> io::Result<OsString> {
        Ok(readlinkat(&self.0, single(name.as_ref())?)?)
    }

    /// Renames an entry within this directory; a file that has the new name is replaced.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.0, single(from.as_ref())?, &self.0, single(to.as_ref())?)?)
    }

    /// Removes a file, link or other entry that is not a directory.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.0, single(name.as_ref())?, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Names of the entries in this directory, unsorted.
    pub fn names(&self) -> io::Result<Names> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(Names(Dir::openat(&self.0, ".", flags, Mode::empty())?.into_iter()))
    }

    /// A `/proc` path to this directory, for system calls that need a path: mount, inotify.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl From<HostDir> for OwnedFd {
    fn from(dir: HostDir) -> Self {
        dir.0
    }
}

/// The names of a directory's entries.
pub struct Names(OwningIter);

impl Iterator for Names {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(entry) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        return Some(Ok(OsString::from_vec(name.to_vec())));
                    }
                }
                Err(errno) => return Some(Err(errno.into())),
            }
        }
    }
}

/// The components of a relative path; fails for `..` and absolute paths.
pub fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let parts = path.components().filter(|part| *part != Component::CurDir).map(|part| match part {
        Component::Normal(name) => single(name),
        _ => Err(EntryError::Outside { path: path.to_owned() }.into()),
    });
    parts.collect()
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(not_absolute(path)),
    }
}

fn not_absolute(path: &Path) -> io::Error {
    EntryError::Relative { path: path.to_owned() }.into()
}

fn busy(name: &OsStr) -> io::Error {
    EntryError::Replaced { name: name.to_owned() }.into()
}

/// True if the error means that the name is no longer a directory.
fn is_no_directory(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [Errno::ENOTDIR as i32, Errno::ELOOP as i32].contains(&code))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn only_single_names_are_entries() {
        let temp = tempfile::tempdir().unwrap();
        let dir = HostDir::open(temp.path()).unwrap();
        for name in ["", ".", "..", "a/b", "/etc", "a\0"] {
            let error = dir.open_dir(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        for path in ["../x", "/x", "a/../b"] {
            assert!(names(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(names(Path::new("./a//b/")).unwrap(), ["a", "b"]);
    }

    #[test]
    fn no_component_of_a_path_is_a_link() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("real")).unwrap();
        symlink("real", temp.path().join("link")).unwrap();
        assert!(HostDir::open(&temp.path().join("real")).is_ok());
        assert!(HostDir::open(&temp.path().join("link")).is_err());
        assert!(HostDir::open_named(&temp.path().join("link")).is_ok());
        assert!(HostDir::create(&temp.path().join("link/new")).is_err());
        assert!(!temp.path().join("real/new").exists());
        HostDir::create(&temp.path().join("real/a/b")).unwrap();
        assert_eq!(fs::metadata(temp.path().join("real/a")).unwrap().mode() & 0o7777, PRIVATE);
        assert!(HostDir::open(Path::new("relative")).is_err());
        assert!(HostDir::open(Path::new("/")).is_ok());
    }

    #[test]
    fn entries_that_are_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("outside")).unwrap();
        fs::create_dir(temp.path().join("in")).unwrap();
        symlink("../outside", temp.path().join("in/link")).unwrap();
        let dir = HostDir::open(&temp.path().join("in")).unwrap();
        assert!(dir.open_dir("link").is_err());
        assert!(dir.make_dir("link", 0o755).is_err());
        assert!(dir.make_dirs(Path::new("link/x"), 0o755).is_err());
        assert_eq!(dir.read_link("link").unwrap(), "../outside");
        assert_eq!(fs::read_dir(temp.path().join("outside")).unwrap().count(), 0);
        dir.make_dirs(Path::new("a/b"), 0o2770).unwrap();
        assert_eq!(fs::metadata(temp.path().join("in/a/b")).unwrap().mode() & 0o7777, 0o2770);
    }
}
