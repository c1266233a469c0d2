//! The one writer. Whatever is queued at a moment becomes one batch and one fsync; then watchers get it in order,
//! then the callers their answers.

use super::{
    batch::Batch,
    disk::Disk,
    error::EmbeddedError,
    record::{Marks, Record, Version},
    recovery::Recovery,
    writer_state::WriterState,
};
use crate::{Change, Durability, KeyValue, Revision, StoreError, Unhealthy, Write};
use bytes::Bytes;
use coracle_cli::causes;
use coracle_trace::Recorder;
use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// A lazy write is on disk after this long at the latest.
const LAZY: Duration = Duration::from_secs(5);
/// Revisions that lazy writes may use before the next reservation is written; a crash skips what is left of them.
const RESERVE: u64 = 512;
/// Limits of one batch.
const BATCH_WRITES: usize = 2048;
const BATCH_BYTES: usize = 8 << 20;

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked for.
pub(super) enum Request {
    Write(Write, Answer<Revision>),
    Compact(Revision, Answer<()>),
    Flush(Answer<()>),
    /// Whether the engine takes writes.
    Check(Answer<()>),
}

impl Request {
    /// Answers that nothing can be written now.
    fn refuse(self, why: &Unhealthy) {
        let refusal = || StoreError::Unavailable(why.clone());
        match self {
            Self::Write(_, answer) => drop(answer.send(Err(refusal()))),
            Self::Compact(_, answer) | Self::Flush(answer) | Self::Check(answer) => {
                drop(answer.send(Err(refusal())));
            }
        }
    }
}

pub(super) struct Writer {
    pub state: WriterState,
    last_batch: LastBatch,
    /// Set while the files cannot be written.
    pub recovery: Option<Recovery>,
    /// Gets the times of batches.
    pub recorder: Recorder,
}

/// Size and sync time of the last batch. Its callers are likely to write again at once; without a short wait for them they
/// would split into two halves that alternate.
#[derive(Default)]
struct LastBatch {
    writes: usize,
    sync: Duration,
}

impl LastBatch {
    /// How long to wait for as many writes as in the last batch: little compared to a sync.
    fn gather_delay(&self) -> Duration {
        (self.sync / 8).min(Duration::from_millis(1))
    }
}

/// A key as it is within the batch that is being put together.
struct Pending {
    version: Option<Version>,
    value: Option<Bytes>,
}

impl Writer {
    /// Goes on after the revision, the newest in the files.
    pub fn new(disk: Disk, marks: Marks, revision: Revision) -> Self {
        let state = WriterState::new(disk, marks, revision);
        Self { state, last_batch: LastBatch::default(), recovery: None, recorder: Recorder::OFF }
    }

    /// Serves until the last sender is gone, then flushes and ends all watches.
    pub fn run(mut self, requests: &Receiver<Request>) {
        while let Some(first) = self.wait(requests) {
            self.recover();
            let why = self.recovery.as_ref().map(|recovery| recovery.why.clone());
            match (first, why) {
                (Some(first), Some(why)) => first.refuse(&why),
                (Some(first), None) => self.serve(first, requests),
                (None, Some(_)) => {}
                (None, None) => drop(self.sync()),
            }
        }
        if let Err(error) = self.flush() {
            tracing::error!(error = %causes::chain(&error), "cannot flush the store");
        }
        self.state.watchers.close();
    }

    /// The next request; `Some(None)` when it is time to sync, `None` at the end.
    fn wait(&self, requests: &Receiver<Request>) -> Option<Option<Request>> {
        let left = match (&self.recovery, self.state.unsynced) {
            (Some(recovery), _) => recovery.delay(),
            (None, Some(since)) => LAZY.saturating_sub(since.elapsed()),
            (None, None) => return requests.recv().ok().map(Some),
        };
        match requests.recv_timeout(left) {
            Ok(request) => Some(Some(request)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Takes what is queued up to the next request that is not a write, and that one too.
    fn serve(&mut self, first: Request, requests: &Receiver<Request>) {
        let (mut writes, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        let mut other = None;
        let gather_until = Instant::now() + self.last_batch.gather_delay();
        while let Some(request) = next.take() {
            match request {
                Request::Write(write, answer) => {
                    bytes += write.value.as_ref().map_or(0, Bytes::len);
                    writes.push((write, answer));
                }
                request => {
                    other = Some(request);
                    break;
                }
            }
            if writes.len() < BATCH_WRITES && bytes < BATCH_BYTES {
                next = requests.try_recv().ok();
                if next.is_none() && writes.len() < self.last_batch.writes {
                    let left = gather_until.saturating_duration_since(Instant::now());
                    next = requests.recv_timeout(left).ok();
                }
            }
        }
        if !writes.is_empty() {
            self.commit(writes);
        }
        match other {
            Some(Request::Compact(upto, answer)) => drop(answer.send(self.compact(upto))),
            Some(Request::Flush(answer)) => drop(answer.send(self.flush())),
            Some(Request::Check(answer)) => {
                let well = self.state.disk.check();
                drop(answer.send(self.record_failure(well)));
            }
            Some(Request::Write(..)) | None => {}
        }
    }

    /// Makes one batch of the writes and answers each of them.
    pub fn commit(&mut self, writes: Vec<(Write, Answer<Revision>)>) {
        let began = Instant::now();
        // Before this batch is counted: only what is on disk can be trimmed.
        let excess = self.state.history.excess();
        let disk = self.state.disk.clone();
        let mut batch = match disk.batch() {
            Ok(batch) => batch,
            Err(error) => {
                let why = self.fail(&error);
                return writes
                    .into_iter()
                    .for_each(|(write, answer)| Request::Write(write, answer).refuse(&why));
            }
        };
        let mut pending = HashMap::new();
        let (mut changes, mut answers, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut sync = false;
        for (write, answer) in writes {
            let durability = write.durability;
            let staged = self.stage(write, &mut pending);
            // The batch keeps the files open, so that only a read can have failed. Health has to tell of it.
            match self.state.disk.note(staged) {
                Ok((change, previous)) => {
                    let (created, key) = (change.created, change.key.as_str());
                    let record = Record { created, previous, key, value: change.value.as_deref() };
                    batch.put(change.revision, &record);
                    sync |= durability == Durability::Sync;
                    changes.push(change);
                    answers.push(answer);
                }
                Err(error) => refused.push((answer, error)),
            }
        }
        let staged = Instant::now();
        let result = if changes.is_empty() { Ok(()) } else { self.write_batch(batch, sync, excess) };
        let synced = Instant::now();
        let took = if sync { synced.saturating_duration_since(staged) } else { Duration::ZERO };
        self.last_batch = LastBatch { writes: changes.len(), sync: took };
        if result.is_ok() {
            self.state.count(&changes);
            self.state.watchers.publish(&changes);
            if sync {
                self.record(&changes, [began, staged, synced]);
            }
        }
        for (answer, change) in answers.into_iter().zip(&changes) {
            // The caller may be gone; the write stands.
            let answered = match &result {
                Ok(()) => Ok(change.revision),
                Err(why) => Err(EmbeddedError::Write(why.clone()).into()),
            };
            let _ = answer.send(answered);
        }
        // Only now: a conflict may tell of a write in the same batch, which nobody may see before it is on disk.
        for (answer, error) in refused {
            let _ = answer.send(Err(error));
        }
    }

    /// Records when a batch was begun, put together, on disk and, now, published.
    fn record(&self, changes: &[Change], times: [Instant; 3]) {
        let (Some(clock), Some(first), Some(last)) = (self.recorder.clock(), changes.first(), changes.last())
        else {
            return;
        };
        let [began, staged, synced] = times.map(|at| clock.of(at));
        self.recorder.batch(first.revision, last.revision, began, staged, synced, clock.now());
    }

    /// Checks one write against the disk and the batch so far, and gives it its revision.
    fn stage(
        &mut self,
        write: Write,
        pending: &mut HashMap<String, Pending>,
    ) -> Result<(Change, Revision), StoreError> {
        if let Some(fence) = write.fence
            && self.version(&fence.key, pending)?.map_or(0, |version| version.modified) != fence.modified
        {
            return Err(StoreError::Fenced(fence.key));
        }
        let now = self.version(&write.key, pending)?;
        let previous = now.map_or(0, |version| version.modified);
        if previous != write.expect || (now.is_none() && write.value.is_none()) {
            return Err(StoreError::Conflict(self.current(&write.key, now, pending)?));
        }
        self.state.revision += 1;
        let revision = self.state.revision;
        let created = now.map_or(revision, |version| version.created);
        let version = write.value.is_some().then_some(Version { created, modified: revision });
        pending.insert(write.key.clone(), Pending { version, value: write.value.clone() });
        Ok((Change { revision, key: write.key, value: write.value, created }, previous))
    }

    /// The version of a key on disk or in the batch so far.
    fn version(&self, key: &str, pending: &HashMap<String, Pending>) -> Result<Option<Version>, StoreError> {
        match pending.get(key) {
            Some(one) => Ok(one.version),
            None => self.state.disk.version(key),
        }
    }

    fn current(
        &self,
        key: &str,
        now: Option<Version>,
        pending: &HashMap<String, Pending>,
    ) -> Result<Option<KeyValue>, StoreError> {
        let Some(one) = pending.get(key) else { return self.state.disk.view()?.get(key) };
        let (Some(version), Some(value)) = (now, one.value.clone()) else { return Ok(None) };
        Ok(Some(KeyValue {
            key: key.to_owned(),
            value,
            created: version.created,
            modified: version.modified,
        }))
    }

    /// Writes the batch to disk, with the marks that belong to it.
    fn write_batch(
        &mut self,
        batch: Batch<'_>,
        mut sync: bool,
        excess: Option<Revision>,
    ) -> Result<(), Unhealthy> {
        let mut marks = self.state.marks.clone();
        if !sync && self.state.revision > marks.reserved {
            // What is shown before it is durable must never be numbered again, so the range is claimed first.
            marks.reserved = self.state.revision + RESERVE;
            sync = true;
        }
        self.put(batch, &mut marks, sync, excess).map_err(|error| self.fail(&error))?;
        self.state.marks = marks;
        if sync {
            self.synced();
        } else {
            self.state.unsynced.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn put(
        &self,
        mut batch: Batch<'_>,
        marks: &mut Marks,
        sync: bool,
        excess: Option<Revision>,
    ) -> Result<(), StoreError> {
        if let Some(upto) = excess {
            // The batch itself is not in the log yet, so nothing of it can be trimmed.
            marks.compact(&mut batch, upto, self.state.watchers.published())?;
        }
        if *marks != self.state.marks {
            batch.put_marks(marks);
        }
        batch.commit(sync)
    }

    /// Enters recovery if the result is a failure of the files.
    fn record_failure<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Unavailable(_)) = &result {
            self.fail(error);
        }
        result
    }

    /// Enters recovery: writes are rejected until it succeeds.
    fn fail(&mut self, error: &StoreError) -> Unhealthy {
        let recovery = Recovery::begin(&mut self.state, error);
        let why = recovery.why.clone();
        self.recovery = Some(recovery);
        why
    }

    /// Attempts the recovery when it is due.
    pub fn recover(&mut self) {
        if self.recovery.as_mut().is_some_and(|recovery| recovery.attempt(&mut self.state)) {
            self.recovery = None;
        }
    }

    /// Everything up to the newest revision is on disk.
    fn synced(&mut self) {
        self.state.unsynced = None;
        self.state.disk.durable.set(self.state.revision);
    }

    fn compact(&mut self, upto: Revision) -> Result<(), StoreError> {
        if upto > self.state.revision {
            return Err(StoreError::Future(upto));
        }
        if upto <= self.state.marks.compacted {
            return Ok(());
        }
        let mut marks = self.state.marks.clone();
        let result = self.state.disk.batch().and_then(|mut batch| {
            marks.compact(&mut batch, upto, self.state.revision)?;
            batch.put_marks(&marks);
            batch.commit(true)
        });
        self.record_failure(result)?;
        self.state.marks = marks;
        self.synced();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let result = self.state.disk.sync();
        self.record_failure(result)?;
        self.synced();
        Ok(())
    }

    /// Everything is on disk afterwards, and the marks say so.
    fn flush(&mut self) -> Result<(), StoreError> {
        if self.state.marks.reserved == 0 {
            return self.sync();
        }
        let mut marks = self.state.marks.clone();
        marks.reserved = 0;
        let mut batch = self.state.disk.batch()?;
        batch.put_marks(&marks);
        let result = batch.commit(true);
        self.record_failure(result)?;
        self.state.marks = marks;
        self.synced();
        Ok(())
    }
}
