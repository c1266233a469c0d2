//! Everything at one moment, page by page. A snapshot of the engine keeps what compaction and later writes would remove, so
//! that neither has to wait.

use super::{disk::Disk, error::EmbeddedError, pinned::Moment, view::View};
use crate::{Export, Revision, StoreError};
use futures::{StreamExt, stream};
use std::ops::Bound;

/// Begins an export. `published` is at most the revision of the export.
pub(super) fn export(disk: &Disk, prefix: String, published: Revision) -> Result<Export, StoreError> {
    let view = disk.view()?;
    let revision = disk.note(view.known())?.max(published);
    let View { at, files } = view;
    // They are not closed before the export is known.
    let pinned = disk.exports.add(Moment { at, index: files.index.clone(), log: files.log.clone() });
    drop(files);
    let from = Bound::Included(prefix.clone().into_bytes());
    let pages = stream::unfold(Some((pinned, disk.clone(), from)), move |state| {
        let prefix = prefix.clone();
        async move {
            let (pinned, disk, from) = state?;
            let reading = pinned.clone();
            let read = tokio::task::spawn_blocking(move || match &*reading.lock() {
                Some(moment) => disk.note(moment.page(&prefix, from)).map(|page| (page, disk)),
                None => Err(EmbeddedError::ExportEnded.into()),
            });
            match read.await.map_err(StoreError::from).and_then(|read| read) {
                Ok((page, disk)) => {
                    let next = page.last().map(|last| Bound::Excluded(last.key.clone().into_bytes()));
                    Some((page.into_iter().map(Ok).collect(), next.map(|from| (pinned, disk, from))))
                }
                Err(error) => Some((vec![Err(error)], None)),
            }
        }
    });
    Ok(Export { revision, keys: pages.map(stream::iter).flatten().boxed() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Embedded, pinned::PAGE_KEYS};
    use super::*;
    use crate::{
        Store,
        conformance_tests::{put, show},
    };
    use futures::TryStreamExt;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn writes_and_compaction_do_not_change_what_is_exported() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let mut at = 0;
        for n in 0..PAGE_KEYS + 2 {
            at = put(&store, &format!("/registry/{n:04}"), 0, "old").await.unwrap();
        }
        let Export { revision, keys } = store.export("/registry/").await.unwrap();
        assert_eq!(revision, at);
        for n in 0..PAGE_KEYS as u64 + 2 {
            put(&store, &format!("/registry/{n:04}"), n + 1, "new").await.unwrap();
        }
        let newest = store.revision().await.unwrap();
        store.compact(newest).await.unwrap();
        let found: Vec<_> = keys.try_collect().await.unwrap();
        assert_eq!(found.len(), PAGE_KEYS + 2);
        assert!(found.iter().all(|one| &one.value[..] == b"old" && one.modified <= at));
        assert!(found.is_sorted_by(|a, b| a.key < b.key));
        let empty: Vec<_> = store.export("/other/").await.unwrap().keys.try_collect().await.unwrap();
        assert_eq!(show(&empty, ""), "");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_export_does_not_keep_the_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        put(&store, "/registry/a", 0, "1").await.unwrap();
        let mut keys = store.export("/").await.unwrap().keys;
        store.disk.close().unwrap().open().unwrap();
        let ended = keys.next().await.unwrap().unwrap_err();
        assert!(matches!(ended, StoreError::Embedded(EmbeddedError::ExportEnded)), "{ended:?}");
        assert!(keys.next().await.is_none());
        assert_eq!(store.export("/").await.unwrap().keys.count().await, 1);
    }
}
