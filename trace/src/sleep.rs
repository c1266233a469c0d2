use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

/// The sleep of the collector, which ends with the first record.
///
/// No wake-up is lost. A thread that records
///
/// 1. claims slots by an exchange of the shard's `head` (or counts a loss), and
/// 2. loads `asleep`, and unparks the collector if it is set.
///
/// The collector, before it parks,
///
/// 3. stores `asleep`, and
/// 4. loads every `head` and the losses, and does not park if one has changed since it released what it read.
///
/// All four are sequentially consistent, so that they have one order that everybody agrees on. If 4 does not see 1, it is before 1: then
/// 3 is before 2, and 2 sees what 3 stored, unless somebody took it back meanwhile: a thread that unparks the collector in its place, or
/// the collector itself, which is awake. Either way 2 is before the next 3 and 1 before the next 4, which sees it. An unpark between 4
/// and the park makes the park return at once.
///
/// A record that is claimed but not complete keeps the collector from parking, which then waits for a short time instead.
///
/// While the collector is awake, 2 is one load of a word that nobody writes. The exchange in 1 has to be there anyway; its order costs
/// nothing on x86-64.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Sleep {
    asleep: AtomicBool,
    collector: OnceLock<Thread>,
}

impl Sleep {
    /// Names the thread that sleeps. The first one counts.
    pub fn of(&self, collector: Thread) {
        let _ = self.collector.set(collector);
    }

    /// Something was recorded or lost.
    pub fn recorded(&self) {
        if self.asleep.load(SeqCst) {
            self.end();
        }
    }

    /// Of all threads that record meanwhile, one unparks the collector.
    #[cold]
    fn end(&self) {
        if self.asleep.swap(false, SeqCst) {
            self.unpark();
        }
    }

    pub fn unpark(&self) {
        if let Some(thread) = self.collector.get() {
            thread.unpark();
        }
    }

    /// Parks the calling thread for at most a time, unless `is_needed` says that there is something to do.
    pub fn park(&self, most: Option<Duration>, is_needed: impl FnOnce() -> bool) {
        self.asleep.store(true, SeqCst);
        if !is_needed() {
            match most {
                Some(most) => thread::park_timeout(most),
                None => thread::park(),
            }
        }
        self.asleep.store(false, Relaxed);
    }
}
