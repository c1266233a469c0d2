//! The directory of manifests: its files, and changes of them as the kernel reports them.

use super::documents::{FileError, MAX_BYTES};
use futures::StreamExt as _;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Most files that are read.
const MAX_FILES: usize = 1000;
/// Editors and copies change a file more than once: what comes within this time is one change.
const QUIET: Duration = Duration::from_millis(100);
/// The longest time that changes are collected.
const LONGEST: Duration = Duration::from_secs(1);

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// These files.
    Files(BTreeSet<String>),
    /// Nobody knows what: the kernel dropped events.
    Unknown,
    /// The directory itself is gone, was moved or unmounted.
    Lost,
}

/// Changes of a directory, from when this was opened.
pub(super) struct Watch {
    dir: PathBuf,
    events: EventStream<[u8; 4096]>,
    /// Files that have changed and were not reported yet.
    changed: BTreeSet<String>,
}

impl Watch {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        // A file that is created is written and closed later; links are there at once.
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE
            | WatchMask::ATTRIB
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        inotify.watches().add(dir, mask)?;
        Ok(Self {
            dir: dir.to_owned(),
            events: inotify.into_event_stream([0; 4096])?,
            changed: BTreeSet::new(),
        })
    }

    /// Waits for a change, and a moment longer for what belongs to it. When it is cancelled, the next call knows what this one
    /// has heard of.
    pub(super) async fn next(&mut self) -> Change {
        // Events of files that are not read do not count.
        while self.changed.is_empty() {
            let event = self.events.next().await;
            if let Some(change) = self.take(event) {
                return change;
            }
        }
        let latest = Instant::now() + LONGEST;
        while let Ok(event) = timeout_at(latest.min(Instant::now() + QUIET), self.events.next()).await {
            if let Some(change) = self.take(event) {
                return change;
            }
            if Instant::now() >= latest {
                break;
            }
        }
        Change::Files(std::mem::take(&mut self.changed))
    }

    /// Takes one event; returns the change if it is about more than a file.
    fn take(&mut self, event: Option<io::Result<EventOwned>>) -> Option<Change> {
        let Some(Ok(event)) = event else { return Some(Change::Lost) };
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return Some(Change::Unknown);
        }
        let ends = EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED;
        if event.mask.intersects(ends) {
            return Some(Change::Lost);
        }
        let name = event.name.and_then(|name| name.into_string().ok()).filter(|name| is_manifest(name))?;
        if !event.mask.contains(EventMask::CREATE) || is_complete(&self.dir.join(&name)) {
            self.changed.insert(name);
        }
        None
    }
}

/// Whether a file that was just created is not going to be written: a symbolic link, or a second name of a file.
fn is_complete(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_symlink() || meta.nlink() > 1)
}

/// Whether a file of this name is read.
fn is_manifest(name: &str) -> bool {
    !name.starts_with('.') && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
}

/// Names of the files that are there.
pub(super) fn files(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if is_manifest(&name) {
            names.insert(name);
        }
    }
    if names.len() > MAX_FILES {
        return Err(io::Error::other(format!("more than {MAX_FILES} files")));
    }
    Ok(names)
}

/// The content of a file; nothing when there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    // Opening a FIFO would wait for somebody who writes.
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            return Ok(None);
        }
        Err(error) => return Err(FileError::Read(error)),
    };
    if !file.metadata().map_err(FileError::Read)?.is_file() {
        return Err(FileError::NotRegular);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(FileError::Read)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(FileError::TooLarge);
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn named(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_manifests_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a.yaml", "b.yml", "c.json", ".d.yaml", "e.txt", "f.yaml~", "g.yaml.tmp"] {
            std::fs::write(path(name), "x").unwrap();
        }
        assert_eq!(files(dir.path()).unwrap(), named(&["a.yaml", "b.yml", "c.json"]));
        assert_eq!(read(&path("a.yaml")).unwrap(), Some(b"x".to_vec()));
        assert_eq!(read(&path("gone.yaml")).unwrap(), None);
        std::os::unix::fs::symlink("nowhere", path("link.yaml")).unwrap();
        assert!(matches!(read(&path("link.yaml")), Err(FileError::Read(_))));
        nix::unistd::mkfifo(&path("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&path("fifo.yaml")), Err(FileError::NotRegular)));
        std::fs::File::create(path("big.yaml")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(read(&path("big.yaml")), Err(FileError::TooLarge)));
    }

    #[tokio::test]
    async fn changes_are_reported_when_they_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut watch = Watch::open(dir.path()).unwrap();
        let open = std::fs::File::create(path("open.yaml")).unwrap();
        std::fs::write(path("notes.txt"), "x").unwrap();
        std::fs::write(path("a.yaml"), "x").unwrap();
        assert_eq!(watch.next().await, Change::Files(named(&["a.yaml"])), "the other one is still written");
        drop(open);
        assert_eq!(watch.next().await, Change::Files(named(&["open.yaml"])));
        std::fs::rename(path("a.yaml"), path("b.yaml")).unwrap();
        std::os::unix::fs::symlink("b.yaml", path("c.yaml")).unwrap();
        assert_eq!(watch.next().await, Change::Files(named(&["a.yaml", "b.yaml", "c.yaml"])));
        std::fs::remove_file(path("b.yaml")).unwrap();
        assert_eq!(watch.next().await, Change::Files(named(&["b.yaml"])));
        drop(dir);
        let mut change = watch.next().await;
        while matches!(change, Change::Files(_)) {
            change = watch.next().await;
        }
        assert_eq!(change, Change::Lost);
    }
}
