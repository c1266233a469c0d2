//! The store in this process. Every value is written once, to a log by revision; an index leads from keys to it.
//!
//! ```text
//! write() ─ queue ─► writer thread: check, batch, fsync ─► watchers ─► answer
//!                         │ a write or sync fails                    ▲
//!                         └─► refuse writes ─► probe the disk ─► open the files again
//! ```

// Records of index and log.
mod record;
// Health of writer and readers.
mod health;
// Errors of damaged or unreadable files.
mod damage;
// Errors of the store.
mod error;
// Panics of the engine and of threads.
mod panics;
// The files of the engine.
mod files;
// Reads at one moment.
mod view;
// Snapshots that outlive a read.
mod pinned;
// Changes that are made as a whole.
mod batch;
// Parsing the journal of the engine.
mod journal;
// Whether the disk takes writes.
mod probe;
// Torn writes at the end of a journal after a crash.
mod torn_writes;
// Tables and their checksums.
mod tables;
// Consistency check of index and log.
mod check;
// The newest durable revision.
mod durable_revision;
// Making, opening and closing the store on disk.
mod disk;
// Everything at one moment, page by page.
mod export;
// A new store with the keys of another.
mod load;
// Retention of history.
mod history;
// Watchers.
mod watchers;
// What the writer has committed and published.
mod writer_state;
// Recovery after a disk failure.
mod recovery;
// The writer thread.
mod writer;
#[cfg(test)]
mod tests;

pub use error::EmbeddedError;
pub(crate) use load::{load, remove};

use super::{
    Engine, Export, HistoryStart, KeyValue, Revision, Store, StoreError, StoreStatus, Unhealthy, Watch, Write,
};
use async_trait::async_trait;
use coracle_trace::Recorder;
use disk::Disk;
use history::KEEP_CHANGES;
use record::Marks;
use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::oneshot;
use view::View;
use watchers::Watchers;
use writer::{Answer, Request, Writer};

const MAX_KEY: usize = 4096;

/// How long the writer may take to say that it is well; a sync may be under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// The embedded store. Dropping it flushes.
pub struct Embedded {
    disk: Disk,
    watchers: Arc<Watchers>,
    /// Taken when dropped, which ends the writer.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens or makes the store in the directory. Fails when another process has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::recording(path, Recorder::OFF)
    }

    /// The same; the recorder gets the times of batches with synced writes.
    pub fn recording(path: &Path, recorder: Recorder) -> Result<Self, StoreError> {
        let (disk, orphans) = Disk::open(path)?;
        let (marks, revision) = recover(&disk, &orphans)?;
        let mut writer = Writer::new(disk.clone(), marks, revision);
        writer.recorder = recorder;
        let watchers = writer.state.watchers.clone();
        let (requests, queue) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || recovery::or_exit(|| writer.run(&queue)))
            .map_err(EmbeddedError::Start)?;
        Ok(Self { disk, watchers, requests: Some(requests), writer: Some(writer) })
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable(Unhealthy::Stopped);
        let (answer, result) = oneshot::channel();
        self.requests.as_ref().and_then(|queue| queue.send(request(answer)).ok()).ok_or_else(gone)?;
        result.await.map_err(|_| gone())?
    }
}

/// Finds the revision to go on from, behind all that anybody has seen, and forgets history that is too long and values
/// that no key leads to.
fn recover(disk: &Disk, orphans: &[Revision]) -> Result<(Marks, Revision), StoreError> {
    let view = disk.view()?;
    let (before, known) = (view.marks()?, view.known()?);
    drop(view);
    let mut marks = before.clone();
    let revision = known.max(marks.reserved);
    if marks.reserved > known {
        // A crash: clients may have seen lazy writes that are gone, so those revisions are never used again.
        marks.lost.push((known, revision));
    }
    marks.reserved = 0;
    if disk.first {
        marks.whole_from = revision;
    }
    let mut batch = disk.batch()?;
    marks.compact(&mut batch, marks.back(revision, KEEP_CHANGES), revision)?;
    orphans.iter().for_each(|orphan| batch.forget(*orphan));
    marks.no_orphans = true;
    if marks != before {
        batch.put_marks(&marks);
        batch.commit(true)?;
    }
    disk.durable.set(revision);
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
        self.disk.read(|view| view.get(key))
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        let (disk, prefix) = (self.disk.clone(), prefix.to_owned());
        let published = self.watchers.published();
        let read = move |view: &View<'_>| {
            // The view may hold commits that are not published yet, never less than what is.
            let newest = view.last()?.max(published);
            match at {
                Some(at) if at > newest => return Err(StoreError::Future(at)),
                Some(at) => view.marks()?.check(at)?,
                None => {}
            }
            Ok((view.range(&prefix, at)?, at.unwrap_or(newest)))
        };
        let read = move || disk.read(read);
        tokio::task::spawn_blocking(read).await?
    }

    async fn export(&self, prefix: &str) -> Result<Export, StoreError> {
        export::export(&self.disk, prefix.to_owned(), self.watchers.published())
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        if write.key.len() > MAX_KEY {
            return Err(EmbeddedError::Key(write.key.len()).into());
        }
        self.ask(|answer| Request::Write(write, answer)).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        watchers::watch(self.watchers.clone(), self.disk.clone(), prefix.to_owned(), after)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.watchers.published())
    }

    async fn history_start(&self, changes: u64) -> Result<HistoryStart, StoreError> {
        let marks = self.disk.read(|view| view.marks())?;
        let from = marks.back(self.watchers.published(), changes).max(1);
        let lost = marks.lost.last().map_or(0, |(_, again)| *again);
        Ok(HistoryStart { from, lost: if lost > from { lost } else { 0 } })
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.ask(|answer| Request::Compact(upto, answer)).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.ask(Request::Flush).await
    }

    async fn health(&self) -> Result<(), Unhealthy> {
        if self.disk.health.recheck_is_due() {
            let disk = self.disk.clone();
            let _ = tokio::task::spawn_blocking(move || disk.recheck()).await;
        }
        if let Some(why) = self.disk.health.why() {
            return Err(why);
        }
        match tokio::time::timeout(PATIENCE, self.ask(Request::Check)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(StoreError::Unavailable(why))) => Err(why),
            Ok(Err(error)) => Err(Unhealthy::Io { detail: error.to_string() }),
            Err(_) => Err(Unhealthy::Stuck { seconds: PATIENCE.as_secs() }),
        }
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let path = self.disk.path.clone();
        let size = tokio::task::spawn_blocking(move || files::size(&path)).await?;
        let problems = self.health().await.err().iter().map(Unhealthy::to_string).collect();
        let (engine, revision) = (Engine::Embedded, self.watchers.published());
        Ok(StoreStatus { engine, revision, size, in_use: size, problems, members: Vec::new() })
    }
}
