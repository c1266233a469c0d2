use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::Thread;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::contexts::{self, Contexts};
use crate::ids::TraceId;
use crate::open::{self, Open, OpenSpan, SlotRef};
use crate::record::{Details, Record, Text};
use crate::ring::{Read, Ring};
use crate::sleep::Sleep;
use crate::slot;

/// Requests per second that get every detail.
const DETAILED_PER_SECOND: u64 = 100;
/// Requests per second that are kept although nothing was recorded below them: clients must not be able to replace what is kept of
/// others by requests that are refused.
const KEPT_PER_SECOND: u64 = 200;
const _: () = assert!(DETAILED_PER_SECOND < 256 && KEPT_PER_SECOND < 256);

/// Records spans, or nothing. A copy is a handle to the same memory.
#[derive(Clone, Copy)]
pub struct Recorder(Option<&'static Inner>);

pub(crate) struct Inner {
    pub clock: Clock,
    pub ring: Ring,
    pub open: Open,
    pub contexts: Contexts,
    /// The second in which detailed requests are counted, and how many there were.
    detailed: AtomicU64,
    /// The same of requests that are kept for their own sake.
    kept: AtomicU64,
    sleep: Sleep,
}

/// How much memory a recorder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Queues of finished spans, between which threads are divided: 1 to 8.
    pub shards: usize,
    /// Slots of a queue, a power of two. A record takes 1 to 3.
    pub slots: usize,
    /// Slots for open spans.
    pub open: usize,
    /// Revisions whose trace is known.
    pub contexts: usize,
}

impl Sizes {
    /// For the server: 896 KiB.
    pub const SERVER: Self = Self { shards: 4, slots: 1024, open: 512, contexts: 8192 };
    /// For the agent: 192 KiB.
    pub const AGENT: Self = Self { shards: 1, slots: 1024, open: 256, contexts: 0 };
    /// For tests: 24 KiB.
    pub const TEST: Self = Self { shards: 1, slots: 64, open: 32, contexts: 256 };

    /// Where the parts begin and end: ring, open spans, contexts.
    pub(crate) fn ends(self) -> [usize; 3] {
        let ring = self.shards * self.slots * slot::SLOT;
        let open = ring + self.open * open::SLOT;
        [ring, open, open + self.contexts * contexts::ENTRY]
    }
}

impl Recorder {
    /// Records nothing.
    pub const OFF: Self = Self(None);

    /// Records into a memory of at least [`Recorder::words`], which is cleared first.
    ///
    /// The recorder itself is never freed: a program makes one.
    ///
    /// # Panics
    ///
    /// If the memory is too small, or a size is not one that [`Sizes`] allows.
    pub fn on(memory: &'static [AtomicU64], sizes: Sizes, clock: Clock) -> Self {
        let [ring, open, contexts] = sizes.ends();
        for word in &memory[..contexts] {
            word.store(0, Relaxed);
        }
        Self(Some(Box::leak(Box::new(Inner {
            clock,
            ring: Ring::new(&memory[..ring], sizes.shards, sizes.slots),
            open: Open::new(&memory[ring..open]),
            contexts: Contexts::new(&memory[open..contexts]),
            detailed: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            sleep: Sleep::default(),
        }))))
    }

    /// How many words of memory a recorder needs.
    pub fn words(sizes: Sizes) -> usize {
        sizes.ends()[2]
    }

    /// A recorder with memory of its own, which is never freed.
    pub fn for_tests() -> Self {
        let words: Vec<AtomicU64> = (0..Self::words(Sizes::TEST)).map(|_| AtomicU64::new(0)).collect();
        Self::on(Vec::leak(words), Sizes::TEST, Clock::start())
    }

    /// Whether anything is recorded.
    #[inline]
    pub fn is_on(self) -> bool {
        self.0.is_some()
    }

    /// The present; [`Moment::MAX`] if the recorder is off.
    #[inline]
    pub fn now(self) -> Moment {
        self.0.map_or(Moment::MAX, |inner| inner.clock.now())
    }

    /// The clock that moments are of.
    #[inline]
    pub fn clock(self) -> Option<&'static Clock> {
        self.0.map(|inner| &inner.clock)
    }

    /// The traces of the newest revisions, if the recorder has a table of them.
    pub fn contexts(self) -> Option<&'static Contexts> {
        self.0.map(|inner| &inner.contexts).filter(|contexts| !contexts.is_empty())
    }

    /// Reads what is complete and not released, oldest first within a shard, without freeing it. [`Recorder::release`] frees it, when it
    /// is in a file. While what this returns exists, another call reads nothing.
    pub fn read(self, each: &mut dyn FnMut(&Record, Option<&Details>, &str)) -> Read {
        self.0.map_or(Read::NOTHING, |inner| inner.ring.read(each))
    }

    /// Frees what was read.
    pub fn release(self, read: Read) {
        read.release();
    }

    /// The spans that have not ended, with the time until now.
    pub fn open(self) -> Vec<OpenSpan> {
        self.0.map_or_else(Vec::new, |inner| inner.open.spans(inner.clock.now()))
    }

    /// How many records were dropped since the start, because they were not read in time.
    pub fn lost(self) -> u64 {
        self.0.map_or(0, |inner| inner.ring.lost())
    }

    /// Has a thread unparked whenever a shard is half full, and when something is recorded while it is in [`Recorder::park`]. The first
    /// thread counts.
    pub fn wake(self, collector: Thread) {
        if let Some(inner) = self.0 {
            inner.sleep.of(collector);
        }
    }

    /// Parks the calling thread, which must be that of [`Recorder::wake`], until something is recorded, somebody unparks it, or the time
    /// is over. Returns at once if there is something that was not released, if more records than `lost` were dropped, or if `is_needed`
    /// is true.
    pub fn park(self, lost: u64, most: Option<Duration>, is_needed: impl FnOnce() -> bool) {
        let Some(inner) = self.0 else { return Sleep::default().park(most, is_needed) };
        inner.sleep.park(most, || !inner.ring.is_empty() || inner.ring.lost() != lost || is_needed());
    }

    pub(crate) fn inner(self) -> Option<&'static Inner> {
        self.0
    }

    /// The trace of a revision and its flags, if they are known.
    pub(crate) fn context_of(self, revision: u64) -> Option<(TraceId, u8)> {
        if revision == 0 { None } else { self.0?.contexts.get(revision) }
    }
}

impl Inner {
    pub fn push(&self, record: &Record, details: Option<&Details>, text: &Text) {
        if self.ring.push(thread_number(), record, details, text.bytes()) {
            self.sleep.unpark();
        }
        self.sleep.recorded();
    }

    /// A slot for a span that begins, if its stage has one.
    pub fn claim(&self, record: &Record, text: &Text) -> SlotRef {
        if record.stage.is_open() {
            self.open.claim(thread_number(), record, text.bytes())
        } else {
            SlotRef::NONE
        }
    }

    /// Whether a request that begins now may have every detail.
    pub fn may_detail(&self, now: Moment) -> bool {
        is_within(&self.detailed, DETAILED_PER_SECOND, now)
    }

    /// Whether a request that ends now may be kept although nothing was recorded below it.
    pub fn may_keep(&self, now: Moment) -> bool {
        is_within(&self.kept, KEPT_PER_SECOND, now)
    }
}

/// Counts one more in a word that has the second and the count of that second; false if there were as many as there may be.
fn is_within(word: &AtomicU64, most: u64, now: Moment) -> bool {
    let second = now.0 / 1_000_000_000;
    let counted = |word: u64| match word >> 8 {
        counted if counted != second => Some(second << 8 | 1),
        _ => (word & 0xff < most).then_some(word + 1),
    };
    word.fetch_update(Relaxed, Relaxed, counted).is_ok()
}

/// Threads in the order in which they first record something.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

impl Default for Recorder {
    fn default() -> Self {
        Self::OFF
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Recorder(on)" } else { "Recorder(off)" })
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("lost", &self.ring.lost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
