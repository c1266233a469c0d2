//! The directory of segments: the newest one is written, the oldest ones are deleted when there are too many.

// When a segment has its age.
mod due;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coracle_trace::Recorder;
use nix::fcntl::Flock;
use tracing::warn;

use crate::block::{Block, StoredRecord};
use crate::builder::encode_with_keys;
use crate::filter::Keys;
use crate::keep_error::{KeepError, at, io_error};
use crate::segment::{self, OpenSegment, Sealed};
use crate::segment_view::SegmentView;
use crate::shared_memory::boot_id;
use crate::spool_id::spool_id;

/// A segment is not larger.
const SEGMENT: u64 = 4 << 20;
const SMALLEST_SEGMENT: u64 = 128 << 10;
/// A segment is not written for longer.
const SEGMENT_AGE: Duration = Duration::from_secs(60 * 60);

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// On disk; one segment may be in addition.
    pub bytes: u64,
    /// Segments whose newest record is older are deleted.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_secs(24 * 60 * 60) }
    }
}

/// Spans on disk.
pub struct Keep {
    pub(crate) dir: PathBuf,
    limits: Limits,
    segment_size: u64,
    spool: u64,
    state: Mutex<Segments>,
    recorder: Recorder,
    /// Where the unix time of the recorder's epoch is written, if its memory is shared.
    epoch: Option<&'static AtomicU64>,
    /// Keeps other processes from writing.
    pub(crate) exclusive: Mutex<Option<Flock<File>>>,
}

#[derive(Default)]
pub(crate) struct Segments {
    /// Oldest first.
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) open: Option<(OpenSegment, Instant)>,
    /// Sealed files that are not on disk yet.
    unsynced: Vec<File>,
    next: u64,
}

impl Keep {
    /// Opens a directory, which is made if it is not there, and repairs what a crash left in it.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, KeepError> {
        make(dir)?;
        let segment_size = (limits.bytes / 8).clamp(SMALLEST_SEGMENT, SEGMENT);
        let mut segments = Segments { next: 1, ..Segments::default() };
        let numbers = segment::numbers(dir).map_err(at("read", dir))?;
        let (spool, is_same_boot) =
            spool_id(dir, numbers.is_empty(), boot_id()).map_err(at("write", &dir.join("id")))?;
        for number in &numbers {
            segments.next = number + 1;
            // Without one of them there are still the others.
            if let Err(error) = segments.take_in(dir, *number, segment_size) {
                warn!(error = &error as &dyn std::error::Error, "spans cannot be read");
            }
        }
        if !is_same_boot {
            // Blocks that were delivered may be lost: what comes now must not get their positions.
            segments.seal()?;
        }
        let keep = Self {
            dir: dir.to_owned(),
            limits,
            segment_size,
            spool,
            state: Mutex::new(segments),
            recorder: Recorder::OFF,
            epoch: None,
            exclusive: Mutex::default(),
        };
        keep.tend()?;
        Ok(keep)
    }

    /// The time of the oldest record, in nanoseconds of unix time.
    pub fn oldest(&self) -> Option<u64> {
        self.segments().iter().map(|segment| segment.first).min()
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// A random number that this directory has for as long as there are segments in it.
    pub fn spool(&self) -> u64 {
        self.spool
    }

    /// The recorder whose spans are kept here: it knows what open spans' moments are in unix time.
    pub fn recorder(&self) -> Recorder {
        self.recorder
    }

    pub(crate) fn recorded_by(self, recorder: Recorder) -> Self {
        Self { recorder, ..self }
    }

    pub(crate) fn epoch_in(self, word: &'static AtomicU64) -> Self {
        Self { epoch: Some(word), ..self }
    }

    /// The wall clock was set: the next process has to know what moments of this one are.
    pub(crate) fn clock_moved(&self, epoch: u64) {
        if let Some(word) = self.epoch {
            word.store(epoch, Relaxed);
        }
    }

    /// Appends records, in as many blocks as they need.
    pub(crate) fn append_records(&self, records: &[StoredRecord]) -> Result<(), KeepError> {
        encode_with_keys(records).iter().try_for_each(|(block, keys)| self.append(block, keys))
    }

    /// Appends a block whose records have these keys. It is in the page cache when this returns, on disk when the segment is sealed.
    pub(crate) fn append(&self, block: &Block, keys: &Keys) -> Result<(), KeepError> {
        let mut segments = self.lock();
        let full = |open: &OpenSegment| open.end + block.bytes.len() as u64 > self.segment_size;
        if segments.open.as_ref().is_some_and(|(open, _)| full(open)) {
            segments.seal()?;
        }
        if segments.open.is_none() {
            let number = segments.next;
            let open = OpenSegment::create(&self.dir, number, self.segment_size)
                .map_err(at("create a segment in", &self.dir))?;
            segments.next += 1;
            segments.open = Some((open, Instant::now()));
        }
        if let Some((open, _)) = &mut segments.open {
            open.append(block, keys).map_err(|source| io_error("write", &open.path, source))?;
        }
        segments.shrink(self.limits)
    }

    /// Seals a segment that is old enough, deletes what is too old, and waits until sealed segments are on disk.
    pub(crate) fn tend(&self) -> Result<(), KeepError> {
        let mut segments = self.lock();
        let is_old = |(open, since): &(OpenSegment, Instant)| open.end > 0 && since.elapsed() >= SEGMENT_AGE;
        let sealed = if segments.open.as_ref().is_some_and(is_old) { segments.seal() } else { Ok(()) };
        let shrunk = segments.shrink(self.limits);
        let unsynced = std::mem::take(&mut segments.unsynced);
        drop(segments);
        // Questions need the lock, and must not wait for the disk.
        let synced = unsynced.iter().try_for_each(File::sync_all).map_err(at("sync", &self.dir));
        sealed.and(shrunk).and(synced)
    }

    /// Waits until everything is on disk.
    pub(crate) fn sync(&self) -> Result<(), KeepError> {
        match &self.lock().open {
            Some((open, _)) => open.sync().map_err(at("sync", &open.path)),
            None => Ok(()),
        }
    }

    /// All segments that have records, oldest first.
    pub(crate) fn segments(&self) -> Vec<SegmentView> {
        let segments = self.lock();
        let sealed = segments.sealed.iter().map(|sealed| SegmentView {
            path: sealed.path.clone(),
            first: sealed.first,
            last: sealed.last,
            pieces: None,
        });
        let open = segments.open.as_ref().and_then(|(open, _)| {
            let (first, last) = open.times()?;
            let path = open.path.clone();
            Some(SegmentView { path, first, last, pieces: Some(open.pieces()) })
        });
        sealed.filter(|sealed| sealed.last > 0).chain(open).collect()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Segments> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Segments {
    /// Takes in a segment that was found in the directory.
    fn take_in(&mut self, dir: &Path, number: u64, size: u64) -> Result<(), KeepError> {
        let path = dir.join(segment::file_name(number));
        // Only the last one can be unfinished, or one whose disk was full.
        let before = self.seal();
        if let Some(sealed) = Sealed::open(path.clone(), number).map_err(at("read", &path))? {
            self.sealed.push(sealed);
            return before;
        }
        let open = OpenSegment::recover(path.clone(), number, size).map_err(at("recover", &path))?;
        self.open = Some((open, Instant::now()));
        before
    }

    fn bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |(open, _)| open.end);
        self.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + open
    }

    fn seal(&mut self) -> Result<(), KeepError> {
        if let Some((open, _)) = self.open.take() {
            let path = open.path.clone();
            let (sealed, done) = open.seal();
            self.sealed.push(sealed);
            self.unsynced.push(done.map_err(at("seal", &path))?);
        }
        Ok(())
    }

    fn shrink(&mut self, limits: Limits) -> Result<(), KeepError> {
        let oldest = now().saturating_sub(nanos(limits.age));
        while let Some(first) = self.sealed.first()
            && (self.bytes() > limits.bytes || first.last < oldest)
        {
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Deletes the oldest sealed segment.
    pub(crate) fn remove_oldest(&mut self) -> Result<(), KeepError> {
        let sealed = self.sealed.remove(0);
        match fs::remove_file(&sealed.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("delete", &sealed.path, error))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn make(dir: &Path) -> Result<(), KeepError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at("create", dir))
}

/// Unix time in nanoseconds.
pub(crate) fn now() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
