//! Unpacks tar entries into a directory that they cannot leave.
//!
//! Every parent directory is opened with `openat2(RESOLVE_IN_ROOT)`: a symbolic link inside the layer is followed as
//! if the layer were `/`, so neither `..` nor absolute links lead outside. The last component is never followed.
//! Whiteouts are converted to overlayfs whiteouts.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat},
    sys::{
        stat::{Mode, SFlag, fchmod, futimens, makedev, mkdirat, mknodat},
        time::TimeSpec,
    },
    unistd::{Gid, Uid, UnlinkatFlags, fchown, linkat, symlinkat, unlinkat},
};
use tar::{Archive, Entry, EntryType};

use super::{
    Error, Result, Unsupported,
    attributes::{Attributes, fd_path},
    disk::DiskUse,
    tar_limit::{BudgetedReader, ReadBudget, violation_in},
    violation::{LayerViolation, MAX_DEPTH},
};
use coracle_host_dir::HostDir;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const AUFS_INTERNAL: &[u8] = b".wh..wh.";

/// The longest path, as the kernel has it.
const MAX_PATH: usize = 4096;
/// Maximum size of the paths of directories that are kept until the end.
const MAX_REMEMBERED: usize = 64 << 20;
/// Free space is checked after this many bytes; a file counts for at least `FILE` bytes.
const DISK_CHECK_INTERVAL: u64 = 64 << 20;
const FILE: u64 = 4096;

/// Limits of an unpacked layer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes, both of the tar stream and of the files in it.
    pub max_bytes: u64,
    /// Files.
    pub max_entries: u64,
}

impl Limits {
    /// For a layer of so many compressed bytes: 200 times as many, or 512 MiB if that is more.
    pub fn for_compressed(size: u64) -> Self {
        Limits { max_bytes: size.saturating_mul(200).max(512 << 20), max_entries: 4_000_000 }
    }
}

/// A directory that entries are made in.
struct Parent {
    fd: OwnedFd,
    /// Directories between it and the root. Links can make it greater than the number of names in a path.
    depth: usize,
}

impl Parent {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Parent { fd: self.fd.try_clone()?, depth: self.depth })
    }
}

/// Unpacks one layer.
pub(super) struct Unpacker {
    root: OwnedFd,
    layer: String,
    limits: Limits,
    entries: u64,
    written: u64,
    /// The directory of the last entry: tar files are sorted by it.
    parent: Option<(PathBuf, Parent)>,
    /// Directory times are set last, because every entry inside changes them.
    directories: Vec<(PathBuf, i64)>,
    /// Directories the layer needed but did not describe.
    implicit: BTreeSet<PathBuf>,
    /// Bytes of paths in these two.
    remembered: usize,
    /// Bytes written since the last check of free space.
    unseen: u64,
    buffer: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new(dir: &Path, layer: &str, limits: Limits) -> Result<Self> {
        let root = File::open(dir).map_err(Error::io("opening", dir))?;
        Ok(Unpacker {
            root: root.into(),
            layer: layer.to_owned(),
            limits,
            entries: 0,
            written: 0,
            parent: None,
            directories: Vec::new(),
            implicit: BTreeSet::new(),
            remembered: 0,
            unseen: 0,
            buffer: vec![0; 256 << 10],
        })
    }

    /// Bytes of file content written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Directories the layer needed but did not describe: what they are like, the layers below say.
    pub(super) fn into_implicit(self) -> Vec<PathBuf> {
        self.implicit.into_iter().collect()
    }

    pub(super) fn run(&mut self, source: impl Read) -> Result<()> {
        let allowance = ReadBudget::default();
        let mut archive = Archive::new(BudgetedReader { inner: source, allowance: allowance.clone() });
        allowance.headers();
        let entries = archive.entries().map_err(|e| self.explain(e))?;
        for entry in entries {
            let mut entry = entry.map_err(|e| self.explain(e))?;
            allowance.contents();
            self.next(&mut entry)?;
            // Skips unread contents, so that they do not count as headers of the next entry. Holes of sparse files can
            // be endless.
            let most = self.limits.max_bytes;
            let left = io::copy(&mut entry.take(most), &mut io::sink()).map_err(|e| self.explain(e))?;
            if left >= most {
                return Err(self.rejected(LayerViolation::TooBig));
            }
            allowance.headers();
        }
        self.finish_directories()
    }

    fn next<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<()> {
        self.entries += 1;
        if self.entries > self.limits.max_entries {
            return Err(self.rejected(LayerViolation::TooManyEntries { most: self.limits.max_entries }));
        }
        let name = entry.path_bytes();
        if name.len() > MAX_PATH {
            return Err(self.rejected(LayerViolation::LongPath { bytes: name.len() }));
        }
        let path = PathBuf::from(OsString::from_vec(name.into_owned()));
        let Some(path) = inside(&path) else {
            return Err(self.rejected(LayerViolation::PathOutside { path }));
        };
        if path.components().count() > MAX_DEPTH {
            return Err(self.rejected(LayerViolation::TooDeep));
        }
        self.entry(&path, entry).map_err(|e| match e {
            Failure::Evil(reason) => self.rejected(reason),
            Failure::Other(error) => error,
            Failure::Io(e) if violation_in(&e).is_some() => self.explain(e),
            Failure::Io(source) => Error::Io { action: "unpacking", path: path.clone(), source },
        })?;
        if self.remembered > MAX_REMEMBERED {
            return Err(self.rejected(LayerViolation::TooManyDirectories));
        }
        self.check_disk(FILE)
    }

    /// Fails before one image fills the disk.
    fn check_disk(&mut self, written: u64) -> Result<()> {
        self.unseen += written;
        if self.unseen < DISK_CHECK_INTERVAL {
            return Ok(());
        }
        self.unseen = 0;
        let disk = DiskUse::of(&self.root).map_err(Error::io("reading", Path::new("the disk of images")))?;
        if disk.is_full() {
            let (layer, source) = (Path::new("layer").join(&self.layer), Errno::ENOSPC.into());
            return Err(Error::Io { action: "leaving room on the disk, not unpacking", path: layer, source });
        }
        Ok(())
    }

    pub(super) fn explain(&self, error: io::Error) -> Error {
        match violation_in(&error) {
            Some(reason) => self.rejected(reason),
            None => Error::unsupported(format!("layer {}", self.layer), Unsupported::Layer(error)),
        }
    }

    fn rejected(&self, reason: LayerViolation) -> Error {
        Error::RejectedLayer { layer: self.layer.clone(), reason }
    }

    fn entry<R: Read>(&mut self, path: &Path, entry: &mut Entry<'_, R>) -> Result<(), Failure> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let attributes = Attributes::of(entry)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            // The root itself.
            return Ok(attributes.apply_fd(&self.root, true)?);
        };
        let Parent { fd: directory, depth } = self.directory(parent)?;
        if depth >= MAX_DEPTH {
            return Err(Failure::Evil(LayerViolation::TooDeep));
        }
        let name_bytes = name.as_bytes();
        if name_bytes == OPAQUE {
            return Ok(make_opaque(&directory)?);
        }
        if name_bytes.starts_with(AUFS_INTERNAL) {
            return Ok(());
        }
        if let Some(hidden) = name_bytes.strip_prefix(WHITEOUT) {
            return self.whiteout(&directory, OsStr::from_bytes(hidden));
        }
        match kind {
            EntryType::Directory => self.make_directory(path, &directory, name, &attributes),
            EntryType::Link => {
                let target = link_target(entry)?;
                let Some(target) = inside(&target) else {
                    let path = path.to_owned();
                    return Err(Failure::Evil(LayerViolation::LinkOutside { path, target }));
                };
                self.make_hard_link(&directory, name, &target)
            }
            EntryType::Symlink => {
                let target = link_target(entry)?;
                self.clear(&directory, name)?;
                symlinkat(&target, &directory, name)?;
                Ok(attributes.apply_at(&directory, name, false)?)
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let (kind, device) = match kind {
                    EntryType::Char => (SFlag::S_IFCHR, device_of(entry.header())?),
                    EntryType::Block => (SFlag::S_IFBLK, device_of(entry.header())?),
                    _ => (SFlag::S_IFIFO, 0),
                };
                self.clear(&directory, name)?;
                mknodat(&directory, name, kind, Mode::from_bits_truncate(attributes.mode), device)?;
                Ok(attributes.apply_at(&directory, name, true)?)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.clear(&directory, name)?;
                self.make_file(&directory, name, entry, &attributes)
            }
            kind => Err(Failure::Evil(LayerViolation::EntryType { path: path.to_owned(), kind })),
        }
    }

    fn make_file<R: Read>(
        &mut self,
        directory: &OwnedFd,
        name: &OsStr,
        entry: &mut Entry<'_, R>,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(directory, name, flags, Mode::from_bits_truncate(0o600))?);
        let mut length = 0;
        loop {
            let n = entry.read(&mut self.buffer)?;
            if n == 0 {
                break;
            }
            length += n as u64;
            self.check_disk(n as u64).map_err(Failure::Other)?;
            if self.written + length > self.limits.max_bytes {
                return Err(io::Error::other(LayerViolation::TooBig).into());
            }
            file.write_all(&self.buffer[..n])?;
        }
        self.written += length;
        Ok(attributes.apply_fd(&file, false)?)
    }

    fn make_directory(
        &mut self,
        path: &Path,
        parent: &OwnedFd,
        name: &OsStr,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        match mkdirat(parent, name, Mode::from_bits_truncate(0o700)) {
            Err(Errno::EEXIST) if open_directory(parent, name).is_ok() => {}
            Err(Errno::EEXIST) => {
                // A directory in the place of a whiteout hides what lies below it.
                let hides = is_whiteout(parent, name);
                self.clear(parent, name)?;
                mkdirat(parent, name, Mode::from_bits_truncate(0o700))?;
                if hides {
                    make_opaque(&open_directory(parent, name)?)?;
                }
            }
            other => other?,
        }
        attributes.apply_fd(&open_directory(parent, name)?, false)?;
        self.implicit.remove(path);
        self.remembered += path.as_os_str().len() + size_of::<PathBuf>();
        self.directories.push((path.to_owned(), attributes.mtime));
        Ok(())
    }

    fn make_hard_link(&mut self, directory: &OwnedFd, name: &OsStr, target: &Path) -> Result<(), Failure> {
        let (Some(parent), Some(target_name)) = (target.parent(), target.file_name()) else {
            return Err(Failure::Evil(LayerViolation::LinkToRoot));
        };
        let from = self.resolve(parent).map_err(|e| missing_target(e, target))?;
        if directory_is(&from, directory) && target_name == name {
            return Ok(());
        }
        self.clear(directory, name)?;
        linkat(&from, target_name, directory, name, AtFlags::empty())
            .map_err(|e| missing_target(io::Error::from(e), target))
    }

    fn whiteout(&mut self, directory: &OwnedFd, hidden: &OsStr) -> Result<(), Failure> {
        if hidden.is_empty() || hidden == "." || hidden == ".." {
            return Err(Failure::Evil(LayerViolation::Whiteout { name: hidden.to_owned() }));
        }
        match mknodat(directory, hidden, SFlag::S_IFCHR, Mode::empty(), 0) {
            // A whiteout is about the layers below: what this layer has itself stays.
            Err(Errno::EEXIST) => match open_directory(directory, hidden) {
                Ok(own) => Ok(make_opaque(&own)?),
                Err(_) => Ok(()),
            },
            other => Ok(other?),
        }
    }

    /// Removes an existing entry of this name.
    fn clear(&mut self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(()),
            // The name is not followed as a link.
            Err(Errno::EISDIR | Errno::EPERM) => HostDir::from_path(directory)?.remove_tree(name)?,
            Err(e) => return Err(e.into()),
        }
        self.parent = None;
        Ok(())
    }

    /// Opens a directory inside the root; creates it if the layer did not describe it.
    fn directory(&mut self, path: &Path) -> Result<Parent, Failure> {
        if let Some((last, parent)) = &self.parent
            && last == path
        {
            return Ok(parent.try_clone()?);
        }
        let parent = match self.open(path, ResolveFlag::RESOLVE_NO_SYMLINKS) {
            // Without links the path says how deep it is.
            Ok(fd) => Parent { fd, depth: path.components().count() },
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)) => {
                self.create_directories(path)?
            }
            Err(e) => return Err(e.into()),
        };
        self.parent = Some((path.to_owned(), parent.try_clone()?));
        Ok(parent)
    }

    /// Walks a path one component at a time, from one directory inside the root to the next, and makes what is
    /// missing: also behind a link whose target nobody made yet.
    fn create_directories(&mut self, path: &Path) -> Result<Parent, Failure> {
        const MAX_LINKS: usize = 40;
        let mut walked = vec![self.root.try_clone()?];
        let mut place = PathBuf::new();
        let mut ahead: Vec<OsString> = parts(path).rev().collect();
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            let here = walked.last().unwrap_or(&self.root);
            if name == ".." {
                walked.truncate(walked.len().saturating_sub(1).max(1));
                place.pop();
                continue;
            }
            let next = match open_directory(here, &name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    if walked.len() > MAX_DEPTH {
                        return Err(Failure::Evil(LayerViolation::TooDeep));
                    }
                    mkdirat(here, name.as_os_str(), Mode::from_bits_truncate(0o755))?;
                    let made = place.join(&name);
                    self.remembered += made.as_os_str().len() + size_of::<PathBuf>();
                    self.implicit.insert(made);
                    open_directory(here, &name)?
                }
                Err(e) => {
                    let Ok(target) = readlinkat(here, name.as_os_str()) else { return Err(e.into()) };
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::ELOOP.into());
                    }
                    let target = PathBuf::from(target);
                    if target.is_absolute() {
                        walked.truncate(1);
                        place.clear();
                    }
                    ahead.extend(parts(&target).rev());
                    continue;
                }
                Ok(next) => next,
            };
            walked.push(next);
            place.push(name);
        }
        let depth = walked.len().saturating_sub(1);
        let fd = walked.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Parent { fd, depth })
    }

    fn resolve(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open(path, ResolveFlag::empty())
    }

    fn open(&self, path: &Path, more: ResolveFlag) -> io::Result<OwnedFd> {
        if path.as_os_str().is_empty() {
            return self.root.try_clone();
        }
        let how = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(
            ResolveFlag::RESOLVE_IN_ROOT
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV
                | more,
        );
        Ok(openat2(&self.root, path, how)?)
    }

    fn finish_directories(&mut self) -> Result<()> {
        for (path, mtime) in std::mem::take(&mut self.directories) {
            // The directory was replaced since.
            if let Ok(fd) = self.resolve(&path) {
                let time = TimeSpec::new(mtime, 0);
                futimens(&fd, &time, &time).map_err(|e| Error::io("unpacking", &path)(e.into()))?;
            }
        }
        Ok(())
    }
}

/// Gives directories that a layer did not describe the owner, mode, time and attributes they have in the layers
/// `below`, topmost first: in the merged view they would hide the lower ones' otherwise.
pub(super) fn inherit(layer: &Path, implicit: &[PathBuf], below: &[PathBuf]) -> io::Result<()> {
    let open = |root: &Path, path: &Path| -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(openat2(File::open(root)?, path, how)?)
    };
    for path in implicit {
        // One that became a link or a file since has its own attributes.
        let Ok(own) = open(layer, path) else { continue };
        let Some(lower) = below.iter().find_map(|root| open(root, path).ok()) else { continue };
        let stat = nix::sys::stat::fstat(&lower)?;
        for name in
            xattr::list_deref(fd_path(&lower))?.filter(|n| !n.as_bytes().starts_with(b"trusted.overlay."))
        {
            if let Some(value) = xattr::get_deref(fd_path(&lower), &name)? {
                xattr::set_deref(fd_path(&own), &name, &value)?;
            }
        }
        fchown(&own, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
        fchmod(&own, Mode::from_bits_truncate(stat.st_mode & 0o7777))?;
        let time = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        futimens(&own, &time, &time)?;
    }
    Ok(())
}

enum Failure {
    Evil(LayerViolation),
    Io(io::Error),
    Other(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Io(errno.into())
    }
}

fn missing_target(error: io::Error, target: &Path) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::Evil(LayerViolation::LinkTarget { target: target.to_owned() }),
        _ => Failure::Io(error),
    }
}

/// The path relative to the root, or `None` when it points above it.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// Names and `..`, without the leading `/`.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

fn device_of(header: &tar::Header) -> io::Result<u64> {
    let number = |n: io::Result<Option<u32>>| n.map(|n| u64::from(n.unwrap_or(0)));
    Ok(makedev(number(header.device_major())?, number(header.device_minor())?))
}

fn link_target<R: Read>(entry: &Entry<'_, R>) -> Result<PathBuf, Failure> {
    match entry.link_name_bytes() {
        Some(name) if !name.is_empty() => Ok(PathBuf::from(OsString::from_vec(name.into_owned()))),
        _ => Err(Failure::Evil(LayerViolation::EmptyLink)),
    }
}

fn open_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn make_opaque(directory: &OwnedFd) -> io::Result<()> {
    xattr::set_deref(fd_path(directory), "trusted.overlay.opaque", b"y")
}

fn is_whiteout(directory: &OwnedFd, name: &OsStr) -> bool {
    nix::sys::stat::fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|s| {
        SFlag::from_bits_truncate(s.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFCHR && s.st_rdev == 0
    })
}

fn directory_is(a: &OwnedFd, b: &OwnedFd) -> bool {
    let stat = |fd: &OwnedFd| nix::sys::stat::fstat(fd).map(|s| (s.st_dev, s.st_ino)).ok();
    stat(a).is_some() && stat(a) == stat(b)
}
