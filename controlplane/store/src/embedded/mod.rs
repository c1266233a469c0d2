//! The store in this process. Every value is written once, to a log by revision; an index leads from keys to it.
//!
//! ```text
//! write() ─ queue ─► writer thread: check, batch, fsync ─► watchers ─► answer
//!                         │ a write or sync fails                    ▲
//!                         └─► refuse writes ─► probe the disk ─► open the files again
//! ```

// What stands on disk.
mod record;
// The files.
mod disk;
// Batches in a journal.
mod journal;
// The journals after a crash.
mod torn;
// Tables and their checksums.
mod tables;
// Whether index and log tell the same.
mod check;
// The newest revision on disk.
mod mark;
// What is wrong with a file.
mod damage;
// What went wrong.
mod health;
// How much of the past stays.
mod history;
// Who watches.
mod hub;
// The thread that writes.
mod writer;
// How it goes on after the disk has failed.
mod trouble;
#[cfg(test)]
mod tests;

use super::{KeyValue, Past, Revision, Store, StoreError, Unhealthy, Watch, Write};
use async_trait::async_trait;
use disk::{Disk, View};
use hub::Hub;
use record::Marks;
use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::oneshot;
use writer::{Answer, Request, Writer};

/// History that stays on disk.
const KEEP_CHANGES: u64 = 8192;
const KEEP_BYTES: u64 = 16 << 20;

const MAX_KEY: usize = 4096;

/// How long the writer may take to say that it is well; a sync may be under way.
const PATIENCE: Duration = Duration::from_secs(10);

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
        let (disk, orphans) = Disk::open(path)?;
        let (marks, revision) = recover(&disk, &orphans)?;
        let writer = Writer::new(disk.clone(), marks, revision);
        let hub = writer.hub.clone();
        let (requests, queue) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || trouble::or_give_up(|| writer.run(&queue)))
            .map_err(|e| StoreError::Engine(format!("start the writer: {e}")))?;
        Ok(Self { disk, hub, requests: Some(requests), writer: Some(writer) })
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
    disk.mark.set(revision);
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
        let published = self.hub.published();
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
        let marks = self.disk.read(|view| view.marks())?;
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
}
