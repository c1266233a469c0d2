//! Waits for changes of files with inotify.

use futures::StreamExt as _;
use inotify::{EventStream, Inotify, WatchMask};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long no file must change before they are read: an editor or `cp` writes more than once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long that is waited for.
const LONGEST: Duration = Duration::from_secs(2);
/// Room for events.
const BUFFER: usize = 4096;

/// Changes of files since they are watched.
pub(super) struct FileChanges(EventStream<[u8; BUFFER]>);

impl FileChanges {
    /// Watches files, and what their names link to. Changes of other files in their directories are seen, too.
    pub(super) fn watch<'p>(files: impl Iterator<Item = &'p PathBuf>) -> std::io::Result<Self> {
        let inotify = Inotify::init()?;
        let appears = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::CREATE;
        let mask = appears | WatchMask::DELETE | WatchMask::MOVED_FROM;
        for directory in directories(files) {
            inotify.watches().add(directory, mask)?;
        }
        inotify.into_event_stream([0; BUFFER]).map(Self)
    }

    /// Waits for a change and for the end of those that come together; at most for a time, if there is one.
    pub(super) async fn wait(mut self, at_most: Option<Duration>) {
        let first = self.0.next();
        match at_most {
            Some(time) => _ = tokio::time::timeout(time, first).await,
            None => _ = first.await,
        }
        let rest = async {
            while tokio::time::timeout(DEBOUNCE, self.0.next()).await.is_ok_and(|event| event.is_some()) {}
        };
        // Other files of the directory may change all the time.
        _ = tokio::time::timeout(LONGEST, rest).await;
    }
}

/// The directories whose changes can change the files: that of the path and, if it is a link, that of the file itself.
fn directories<'p>(files: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut all = BTreeSet::new();
    for file in files {
        all.insert(parent(file));
        all.extend(file.canonicalize().ok().map(|file| parent(&file)));
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn seen(changes: FileChanges) -> bool {
        tokio::time::timeout(Duration::from_secs(10), changes.wait(None)).await.is_ok()
    }

    #[tokio::test]
    async fn every_way_to_replace_or_remove_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir_all(&real).unwrap();
        std::fs::create_dir_all(&link).unwrap();
        let (target, path) = (real.join("ca.pem"), link.join("ca.pem"));
        std::fs::write(&target, "one").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let watched = || {
            let all = directories([&path].into_iter());
            assert_eq!(all.len(), 2, "{all:?}");
            FileChanges::watch([&path].into_iter()).unwrap()
        };
        let changes = watched();
        std::fs::write(&target, "two").unwrap();
        assert!(seen(changes).await, "the file is written");
        let changes = watched();
        std::fs::write(real.join("new"), "three").unwrap();
        std::fs::rename(real.join("new"), &target).unwrap();
        assert!(seen(changes).await, "another file takes its place");
        let changes = watched();
        std::os::unix::fs::symlink(real.join("other"), link.join("next")).unwrap();
        std::fs::rename(link.join("next"), &path).unwrap();
        assert!(seen(changes).await, "the link points elsewhere");
        let watched = || FileChanges::watch([&path].into_iter()).unwrap();
        let changes = watched();
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        assert!(seen(changes).await, "it is moved away");
        std::fs::write(&path, "four").unwrap();
        let changes = watched();
        std::fs::remove_file(&path).unwrap();
        assert!(seen(changes).await, "it is removed");
    }
}
