//! The thread that takes records out of the recorder and appends them to the segments.
//!
//! A record is released from the recorder's memory after it was written: it is in one of the two at any time. Without records, questions
//! and segments that have their age, the thread sleeps.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use coracle_trace::{Clock, Recorder, Sizes, Stage, Uid};
use tracing::{error, info, warn};

use crate::block::{Block, StoredRecord};
use crate::builder::{BlockBuilder, Origin, encode};
use crate::decoder::RecordRef;
use crate::handle::{Batch, CollectorHandle, Shared, Subscriber, Written, locked};
use crate::keep::{Keep, now};
use crate::keep_error::KeepError;
use crate::recover::{marker, recover, restarted};
use crate::search::newest;
use crate::shared_memory;
use crate::taken;
use crate::usual::{Usual, counted};

/// Batches of nodes that may wait.
const BATCHES: usize = 64;
/// How long a record waits for others of its block.
const GATHER: Duration = Duration::from_millis(250);
const USUAL: Duration = Duration::from_secs(600);
/// Spans of nodes are not from later than this after now, in nanoseconds.
const AHEAD: u64 = 60 * 1_000_000_000;
/// And not from earlier than two days before.
const OLDEST: u64 = 2 * 24 * 60 * 60 * 1_000_000_000;
/// Between two messages about a disk that does not work.
const COMPLAINT: Duration = Duration::from_secs(60);

/// Empties a recorder into a [`Keep`].
pub struct Collector {
    shared: Arc<Shared>,
    batches: Receiver<(Batch, Written)>,
    /// Who waits for the batches of this round.
    waiting: Vec<Written>,
    /// A block of these batches was not written.
    failed: bool,
    builder: BlockBuilder,
    boot: u128,
    /// Records in the block that is being filled.
    filled: u64,
    /// Their times, until they are counted.
    observed: Vec<(Stage, u64)>,
    lost: u64,
    usual_written: Instant,
    complained: Option<Instant>,
}

impl Collector {
    /// Starts the thread.
    pub fn start(recorder: Recorder, keep: Keep) -> CollectorHandle {
        Self::start_after(HashMap::new(), recorder, keep)
    }

    /// As [`Collector::start`], with what the end of the process before this one cut off.
    fn start_after(cut: HashMap<(Uid, Stage), u64>, recorder: Recorder, keep: Keep) -> CollectorHandle {
        let keep = keep.recorded_by(recorder);
        let mut usual = Usual::default();
        if let Ok(Some(stored)) = newest(&keep, Stage::Usual) {
            usual.remember(&stored.text);
        }
        let (sender, batches) = sync_channel(BATCHES);
        let shared = Arc::new(Shared::new(recorder, keep, sender, usual, cut));
        let mut collector = Self {
            shared: Arc::clone(&shared),
            batches,
            waiting: Vec::new(),
            failed: false,
            builder: BlockBuilder::default(),
            boot: shared_memory::boot_id(),
            filled: 0,
            observed: Vec::new(),
            lost: recorder.lost(),
            usual_written: Instant::now(),
            complained: None,
        };
        let run = move || {
            let _over = Over(Arc::clone(&collector.shared));
            collector.run();
        };
        let join = match thread::Builder::new().name("spans".into()).spawn(run) {
            Ok(join) => Some(join),
            Err(error) => {
                error!(%error, "cannot start the collector of spans: nothing is recorded");
                shared.over();
                None
            }
        };
        CollectorHandle::new(shared, join)
    }

    fn run(&mut self) {
        self.shared.recorder.wake(thread::current());
        loop {
            let answers = self.shared.begin_round();
            // After the round has begun: a stop that comes now asks for another one.
            let stop = self.shared.stop.load(Relaxed);
            self.round();
            self.shared.end_round(answers);
            if stop {
                break;
            }
            self.rest();
        }
        if let Err(error) = self.shared.keep.sync() {
            warn!(error = &error as &dyn std::error::Error, "spans may not be on disk");
        }
        self.shared.keep.unlock();
    }

    /// Sleeps until something was recorded, somebody asks, or a segment is old, and then gathers records unless somebody asks.
    fn rest(&self) {
        let shared = &*self.shared;
        shared.recorder.park(self.lost, shared.keep.due(), || shared.is_wanted());
        if !shared.is_wanted() {
            thread::park_timeout(GATHER);
        }
    }

    /// Writes what there is.
    fn round(&mut self) {
        let recorder = self.shared.recorder;
        let origin = Origin { boot: self.boot, offset: 0 };
        self.check_clock(origin);
        let read = recorder.read(&mut |record, details, text| {
            let start = recorder.clock().map_or(0, |clock| clock.unix(record.start));
            self.push(&RecordRef::own(*record, details.copied(), text, start), origin);
        });
        self.note_lost(origin);
        self.failed = false;
        for _ in 0..BATCHES {
            let Ok((batch, written)) = self.batches.try_recv() else { break };
            self.ingest(&batch);
            self.waiting.push(written);
        }
        self.write_usual(origin);
        self.flush();
        let is_written = !self.failed;
        self.waiting.drain(..).for_each(|written| written(is_written));
        recorder.release(read);
        if let Err(error) = self.shared.keep.tend() {
            self.complain(&error);
        }
    }

    fn push(&mut self, record: &RecordRef<'_>, origin: Origin) {
        self.builder.push(record, origin);
        self.filled += 1;
        let observed = &mut self.observed;
        counted(&record.record, record.details.as_ref(), &mut |stage, nanos| observed.push((stage, nanos)));
        if self.builder.is_full() {
            self.flush();
        }
    }

    fn push_marker(&mut self, marker: &StoredRecord, origin: Origin) {
        self.push(&RecordRef::of(marker), origin);
    }

    fn flush(&mut self) {
        if self.builder.is_empty() {
            return;
        }
        let (block, keys) = self.builder.finish();
        let records = std::mem::take(&mut self.filled);
        locked(&self.shared.usual).observe(self.observed.drain(..));
        if let Err(error) = self.shared.keep.append(&block, &keys) {
            self.shared.dropped_blocks.fetch_add(1, Relaxed);
            self.failed = true;
            self.complain(&error);
        }
        self.shared.records.fetch_add(records, Relaxed);
        let block = Arc::new(block);
        locked(&self.shared.subscribers).retain_mut(|subscriber| hand_out(subscriber, &block));
        locked(&self.shared.listeners).iter().for_each(|call| call());
    }

    fn check_clock(&mut self, origin: Origin) {
        let Some(clock) = self.shared.recorder.clock() else { return };
        if let Some(step) = clock.check() {
            warn!(step_ns = step, "the wall clock was set");
            self.shared.keep.clock_moved(clock.unix(coracle_trace::Moment(0)));
            let text = step.to_string();
            self.push_marker(&marker(Stage::ClockStep, now(), 0, step.unsigned_abs(), &text), origin);
        }
    }

    fn note_lost(&mut self, origin: Origin) {
        let lost = self.shared.recorder.lost();
        let more = lost.saturating_sub(self.lost);
        if more > 0 {
            self.lost = lost;
            self.push_marker(&marker(Stage::Lost, now(), 0, more, "no room in memory"), origin);
        }
    }

    fn ingest(&mut self, batch: &Batch) {
        let origin = Origin { boot: batch.boot, offset: batch.offset };
        let latest = now().saturating_add(AHEAD);
        let earliest = latest.saturating_sub(OLDEST);
        for block in Block::split(&batch.blocks).unwrap_or_default() {
            for mut record in block.records().unwrap_or_default() {
                // A clock that is far off would make segments look older or newer than they are.
                record.start = record.start.saturating_add_signed(batch.offset).clamp(earliest, latest);
                record.record.duration = record.record.duration.min(latest - record.start);
                record.node.clone_from(&batch.node);
                record.uncertainty = batch.uncertainty;
                self.push(&RecordRef::of(&record), origin);
            }
        }
        self.push_marker(&taken::record(&batch.node, batch.taken), Origin { boot: batch.boot, offset: 0 });
    }

    fn write_usual(&mut self, origin: Origin) {
        // Agents, which know no traces of revisions, answer no questions.
        let is_agent = self.shared.recorder.contexts().is_none();
        if is_agent || self.usual_written.elapsed() < USUAL {
            return;
        }
        self.usual_written = Instant::now();
        let text = {
            let mut usual = locked(&self.shared.usual);
            let text = usual.text();
            usual.age();
            text
        };
        if !text.is_empty() {
            self.push_marker(&marker(Stage::Usual, now(), 0, 0, &text), origin);
        }
    }

    fn complain(&mut self, error: &KeepError) {
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAINT) {
            self.complained = Some(Instant::now());
            warn!(error = error as &dyn std::error::Error, "spans are not kept");
        }
    }
}

/// Ends the waiting for a thread that ends, by a panic, too.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// False if the subscriber is gone.
fn hand_out(subscriber: &mut Subscriber, block: &Arc<Block>) -> bool {
    let send = |block| match subscriber.sender.try_send(block) {
        Ok(()) => Some(true),
        Err(TrySendError::Full(_)) => Some(false),
        Err(TrySendError::Disconnected(_)) => None,
    };
    if subscriber.missed > 0 {
        let lost = marker(Stage::Lost, now(), 0, subscriber.missed, "the subscriber is too slow");
        match encode(&[lost]).pop().and_then(|block| send(Arc::new(block))) {
            Some(true) => subscriber.missed = 0,
            Some(false) => {
                subscriber.missed += 1;
                return true;
            }
            None => return false,
        }
    }
    match send(Arc::clone(block)) {
        Some(taken) => {
            subscriber.missed += u64::from(!taken);
            true
        }
        None => false,
    }
}

/// Recovers what the process before this one left, starts a recorder and its collector.
///
/// Without a path, or where it cannot be used, the memory of the recorder ends with the process.
pub fn start_recording(path: Option<&Path>, sizes: Sizes, keep: Keep) -> (Recorder, CollectorHandle) {
    let opened = path.and_then(|path| match shared_memory::open(path, sizes) {
        Ok(opened) => Some(opened),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(error, "spans are in private memory: a crash loses those of the last second");
            None
        }
    });
    let (memory, left) = opened.unwrap_or_else(|| (shared_memory::private(sizes), None));
    let recovered = match &left {
        Some(left) => recover(&keep, left).map(Some),
        None if keep.oldest().is_some() => {
            keep.append_records(&[restarted(None, "nothing was left in memory")]).map(|()| None)
        }
        None => Ok(None),
    };
    let keep = keep.epoch_in(memory.epoch());
    let recorder = memory.start(Clock::start());
    let mut cut = HashMap::new();
    match recovered {
        Ok(Some(mut recovered)) => {
            cut = std::mem::take(&mut recovered.cut);
            let (records, unfinished) = (recovered.records, recovered.unfinished);
            if records + unfinished > 0 {
                info!(records, unfinished, "recovered spans of the process before this one");
            }
            recovered.restore(recorder);
        }
        Ok(None) => {}
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "spans of the process before this one are lost")
        }
    }
    (recorder, Collector::start_after(cut, recorder, keep))
}

#[cfg(test)]
mod tests;
