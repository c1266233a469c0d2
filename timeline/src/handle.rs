//! What the rest of the program has of the collector.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use coracle_trace::{Recorder, Stage, Uid};

use crate::block::{Block, BlockError, StoredRecord};
use crate::elsewhere::{self, Elsewhere, Wanted};
use crate::keep::Keep;
use crate::keep_error::KeepError;
use crate::search::{Found, Question, find_everywhere, stored_open};
use crate::taken::{self, Taken};
use crate::usual::Usual;

/// Blocks that a subscriber may be behind.
const SUBSCRIBER: usize = 64;
/// How long a query waits for what was recorded just before it.
const FLUSH: Duration = Duration::from_secs(5);

/// Spans of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Whose they are.
    pub node: String,
    /// The server's clock minus the node's: it is added to the times.
    pub offset: i64,
    /// How far the offset may be off, in nanoseconds.
    pub uncertainty: u32,
    /// The boot id of the node.
    pub boot: u128,
    /// Blocks as on the node's disk.
    pub blocks: Vec<u8>,
    /// Where they end in the spool of the node.
    pub taken: Taken,
}

/// What is told whether a batch was written.
pub(crate) type Written = Box<dyn FnOnce(bool) + Send>;

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// Too many wait already.
    #[error("too many batches of spans wait to be written")]
    Full,
    /// The collector has ended.
    #[error("the server is stopping")]
    Stopped,
    /// It is damaged.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// What the collector has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Records written since the start.
    pub records: u64,
    /// Records that the recorder had no room for.
    pub lost: u64,
    /// Blocks that could not be written.
    pub dropped_blocks: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Unix time of the oldest record in nanoseconds; 0 if there is none.
    pub oldest: u64,
}

/// What the thread and its handles share.
pub(crate) struct Shared {
    pub(crate) recorder: Recorder,
    pub(crate) keep: Keep,
    pub(crate) batches: SyncSender<(Batch, Written)>,
    pub(crate) subscribers: Mutex<Vec<Subscriber>>,
    /// Called after each block.
    pub(crate) listeners: Mutex<Vec<Box<dyn Fn() + Send>>>,
    pub(crate) usual: Mutex<Usual>,
    pub(crate) records: AtomicU64,
    pub(crate) dropped_blocks: AtomicU64,
    /// What the end of the process before this one cut off.
    cut: HashMap<(Uid, Stage), u64>,
    pub(crate) stop: AtomicBool,
    /// Somebody asks for a round that begins after this was set.
    is_wanted: AtomicBool,
    rounds: Mutex<Rounds>,
    round_done: Condvar,
}

#[derive(Default)]
struct Rounds {
    wanted: u64,
    done: u64,
    over: bool,
}

pub(crate) struct Subscriber {
    pub(crate) sender: SyncSender<Arc<Block>>,
    /// Blocks that it was too slow for.
    pub(crate) missed: u64,
}

impl Shared {
    pub(crate) fn new(
        recorder: Recorder,
        keep: Keep,
        batches: SyncSender<(Batch, Written)>,
        usual: Usual,
        cut: HashMap<(Uid, Stage), u64>,
    ) -> Self {
        Self {
            recorder,
            keep,
            batches,
            subscribers: Mutex::default(),
            listeners: Mutex::default(),
            usual: Mutex::new(usual),
            records: AtomicU64::new(0),
            dropped_blocks: AtomicU64::new(0),
            cut,
            stop: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            rounds: Mutex::default(),
            round_done: Condvar::new(),
        }
    }

    /// The round that begins now answers everybody who waits.
    pub(crate) fn begin_round(&self) -> u64 {
        self.is_wanted.swap(false, AcqRel);
        locked(&self.rounds).wanted
    }

    pub(crate) fn end_round(&self, answered: u64) {
        locked(&self.rounds).done = answered;
        self.round_done.notify_all();
    }

    /// Nobody waits for a thread that has ended, and nobody gets more of its blocks.
    pub(crate) fn over(&self) {
        locked(&self.rounds).over = true;
        self.round_done.notify_all();
        locked(&self.subscribers).clear();
    }

    /// Whether a round has to begin at once. Who asks sets this, and then unparks the thread: it sees this before it parks, or does not
    /// stay parked.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Acquire)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running collector. Clones are the same collector.
#[derive(Clone)]
pub struct CollectorHandle {
    pub(crate) shared: Arc<Shared>,
    /// The thread, if it could be started.
    thread: Option<Thread>,
    /// Until somebody waits for its end.
    join: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl CollectorHandle {
    pub(crate) fn new(shared: Arc<Shared>, join: Option<JoinHandle<()>>) -> Self {
        let thread = join.as_ref().map(|join| join.thread().clone());
        Self { shared, thread, join: Arc::new(Mutex::new(join)) }
    }

    /// Asks for a round. What it has to see is there before.
    fn wake(&self) {
        self.shared.is_wanted.store(true, Release);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }

    /// The spans on disk.
    pub fn keep(&self) -> &Keep {
        &self.shared.keep
    }

    /// Where the spans come from.
    pub fn recorder(&self) -> Recorder {
        self.shared.recorder
    }

    /// Starts and ends of pods that the process before this one had begun, and the revisions that they began with: this one goes on
    /// with them.
    pub fn cut_off(&self) -> HashMap<(Uid, Stage), u64> {
        self.shared.cut.clone()
    }

    /// How long stages usually take.
    pub fn usual(&self) -> Usual {
        locked(&self.shared.usual).clone()
    }

    /// Answers a question with everything that was recorded before the call. Blocks.
    pub fn find(&self, question: &Question) -> Result<Found, KeepError> {
        self.find_everywhere(question, None)
    }

    /// The same with what other servers have.
    pub fn find_everywhere(
        &self,
        question: &Question,
        elsewhere: Option<Box<dyn Elsewhere>>,
    ) -> Result<Found, KeepError> {
        // In this order: a span that ends meanwhile is in the list of open ones, on disk, or in both, but never in neither.
        let open = self.shared.recorder.open();
        let is_complete = self.flushed();
        let mut found = find_everywhere(&self.shared.keep, &open, question, elsewhere)?;
        found.behind = !is_complete;
        Ok(found)
    }

    /// For another server that begins a search: the spans that have not ended, and whether some that have cannot be found yet. Blocks.
    pub fn open_spans(&self) -> (Vec<StoredRecord>, bool) {
        let open = self.shared.recorder.open();
        let is_behind = !self.flushed();
        (stored_open(&self.shared.keep, &open), is_behind)
    }

    /// For the search of another server: up to `most` of the records on disk that it wants, and whether there are more. Blocks.
    pub fn find_wanted(&self, wanted: &Wanted, most: usize) -> Result<(Vec<StoredRecord>, bool), KeepError> {
        elsewhere::find_wanted(&self.shared.keep, wanted, most)
    }

    /// Returns when everything that was recorded before the call can be found; false if that took too long. Blocks.
    pub fn flushed(&self) -> bool {
        let mut rounds = locked(&self.shared.rounds);
        rounds.wanted += 1;
        let ticket = rounds.wanted;
        self.wake();
        let waiting = |rounds: &mut Rounds| rounds.done < ticket && !rounds.over;
        let waited = self.shared.round_done.wait_timeout_while(rounds, FLUSH, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes spans of a node, which must be about objects that are its own. Calls `written`, which must not block, when they are in
    /// the segments, where a crash of this process does not lose them, with false if they could not be written. It is dropped if the
    /// collector ends before that.
    pub fn ingest(
        &self,
        batch: Batch,
        written: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), IngestError> {
        for block in Block::split(&batch.blocks)? {
            block.records()?;
        }
        self.shared.batches.try_send((batch, Box::new(written))).map_err(|error| match error {
            TrySendError::Full(_) => IngestError::Full,
            TrySendError::Disconnected(_) => IngestError::Stopped,
        })?;
        self.wake();
        Ok(())
    }

    /// Up to where spans of a node were taken, by this process or one before it. Blocks.
    pub fn taken(&self, node: &str) -> Result<Option<Taken>, KeepError> {
        taken::newest(&self.shared.keep, node)
    }

    /// Every block that is written from now on, until the collector ends. One who is too slow misses blocks; the next one that he gets
    /// is a `Lost` record whose revision is their number.
    pub fn subscribe(&self) -> Receiver<Arc<Block>> {
        let (sender, receiver) = sync_channel(SUBSCRIBER);
        let mut subscribers = locked(&self.shared.subscribers);
        if !locked(&self.shared.rounds).over {
            subscribers.push(Subscriber { sender, missed: 0 });
        }
        receiver
    }

    /// Calls something, which must not block, after every block that is written from now on.
    pub fn on_append(&self, call: impl Fn() + Send + 'static) {
        locked(&self.shared.listeners).push(Box::new(call));
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            records: self.shared.records.load(Relaxed),
            lost: self.shared.recorder.lost(),
            dropped_blocks: self.shared.dropped_blocks.load(Relaxed),
            bytes: self.shared.keep.bytes(),
            oldest: self.shared.keep.oldest().unwrap_or_default(),
        }
    }

    /// Writes what was recorded, waits for the disk and ends the thread. Blocks.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        self.wake();
        let join = locked(&self.join).take();
        if let Some(join) = join {
            let _ = join.join();
        }
    }
}
