//! The store in this process. Every value is written once, to a log by revision; an index leads from keys to it.
//!
//! ```text
//! write() ─ queue ─► writer thread: check, batch, fsync ─► watchers ─► answer
//! ```

// What stands on disk.
mod record;
// The files.
mod disk;
// Their end after a power cut.
mod torn;
// How much of the past stays.
mod history;
// Who watches.
mod hub;
// The thread that writes.
mod writer;
#[cfg(test)]
mod tests;

use super::{KeyValue, Past, Revision, Store, StoreError, Watch, Write};
use async_trait::async_trait;
use disk::Disk;
use fjall::PersistMode;
use history::History;
use hub::Hub;
use record::Marks;
use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};
use tokio::sync::oneshot;
use writer::{Answer, Pace, Request, Writer};

/// History that stays on disk.
const KEEP_CHANGES: u64 = 8192;
const KEEP_BYTES: u64 = 16 << 20;

const MAX_KEY: usize = 4096;

/// The embedded store. Dropping it flushes.
pub struct Embedded {
    disk: Disk,
    hub: Arc<Hub>,
    /// Taken when dropped, which ends the writer.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens or makes the store in the directory. Fails when another process has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let disk = Disk::open(path)?;
        let (marks, revision) = recover(&disk)?;
        let hub = Arc::new(Hub::new(revision));
        let writer = Writer {
            disk: disk.clone(),
            hub: hub.clone(),
            marks,
            revision,
            history: History::new(KEEP_CHANGES, KEEP_BYTES, revision),
            unsynced: None,
            pace: Pace::default(),
        };
        let (requests, queue) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(|e| StoreError::Engine(format!("start the writer: {e}")))?;
        Ok(Self { disk, hub, requests: Some(requests), writer: Some(writer) })
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, StoreError> {
        let gone = || StoreError::Engine("the store's writer has stopped".to_owned());
        let (answer, result) = oneshot::channel();
        self.requests.as_ref().and_then(|queue| queue.send(request(answer)).ok()).ok_or_else(gone)?;
        result.await.map_err(|_| gone())?
    }
}

/// Finds the revision to go on from, behind all that anybody has seen, and forgets history that is too long.
fn recover(disk: &Disk) -> Result<(Marks, Revision), StoreError> {
    let view = disk.view();
    let (before, last) = (view.marks()?, view.last()?);
    let mut marks = before.clone();
    let known = marks.lost.iter().map(|(_, again)| *again).fold(last.max(marks.compacted), Revision::max);
    let revision = known.max(marks.reserved);
    if marks.reserved > known {
        // A crash: clients may have seen lazy writes that are gone, so those revisions are never used again.
        marks.lost.push((known, revision));
    }
    marks.reserved = 0;
    let mut batch = disk.batch();
    marks.compact(disk, &mut batch, marks.back(revision, KEEP_CHANGES))?;
    if marks != before {
        disk.put_marks(&mut batch, &marks);
        batch.durability(Some(PersistMode::SyncData)).commit()?;
    }
    Ok((marks, revision))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.disk.view().get(key)
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        let (disk, prefix) = (self.disk.clone(), prefix.to_owned());
        let published = self.hub.published();
        let read = move || {
            let view = disk.view();
            // The view may hold commits that are not published yet, never less than what is.
            let newest = view.last()?.max(published);
            match at {
                Some(at) if at > newest => return Err(StoreError::Future(at)),
                Some(at) => view.marks()?.check(at)?,
                None => {}
            }
            Ok((view.range(&prefix, at)?, at.unwrap_or(newest)))
        };
        tokio::task::spawn_blocking(read).await.map_err(|e| StoreError::Engine(e.to_string()))?
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        if write.key.len() > MAX_KEY {
            return Err(StoreError::Engine(format!("a key of {} bytes is too long", write.key.len())));
        }
        self.ask(|answer| Request::Write(write, answer)).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        hub::watch(self.hub.clone(), self.disk.clone(), prefix.to_owned(), after)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.hub.published())
    }

    async fn past(&self, changes: u64) -> Result<Past, StoreError> {
        let marks = self.disk.view().marks()?;
        let from = marks.back(self.hub.published(), changes).max(1);
        let lost = marks.lost.last().map_or(0, |(_, again)| *again);
        Ok(Past { from, lost: if lost > from { lost } else { 0 } })
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.ask(|answer| Request::Compact(upto, answer)).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.ask(Request::Flush).await
    }
}
