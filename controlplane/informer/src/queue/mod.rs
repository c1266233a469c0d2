//! The work queue between informers and a controller: a key waits at most once, is never worked on twice at the same
//! time, comes back later after a failure, and later still after the next one. Of the changes that add a key, the most
//! important is kept as the cause of its turn.

// What can be queued.
mod item;
// The rules, without clock or tasks.
mod state;
#[cfg(test)]
mod tests;

pub use item::Item;

use crate::queue_metrics::{MeasuredQueue, QueueStats};
use coracle_trace::Cause;
use parking_lot::Mutex;
use state::State;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A deduplicated, rate-limited queue of keys, shared by producers and workers.
///
/// ```
/// let queue = coracle_informer::queue::Queue::new();
/// queue.add("default/web");
/// queue.add("default/web");
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

impl<K: Item> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Item> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { state: Mutex::new(State::new()), wake: Notify::new() }
    }

    /// Adds a key; one that waits already is not added twice, one being worked on comes again afterwards. The change that is
    /// being handled ([`coracle_trace::cause`]) is the cause of its turn, unless a more important one is waiting.
    pub fn add(&self, key: K) {
        if self.state.lock().add(key, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// Adds a key once the delay is over; the earliest of several delays counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state.lock().add_after(key, delay, Instant::now());
        self.wake.notify_one();
    }

    /// Ignores delays of at least this length, other than retries after failures: such keys come back only by
    /// [`Queue::add`]. Tests use it, because a requeue after a long time would hide that an event was lost.
    pub fn ignore_delays_from(&self, limit: Duration) {
        self.state.lock().ignored = Some(limit);
    }

    /// Takes the next key, waiting for one. Give it back with [`Queue::done`].
    pub async fn take(&self) -> K {
        self.take_caused().await.0
    }

    /// [`Queue::take`], with the cause of the turn and since when the key waited because of it.
    pub async fn take_caused(&self) -> (K, Cause, Instant) {
        loop {
            let due = {
                let (mut state, now) = (self.state.lock(), Instant::now());
                if let Some(key) = state.take(now) {
                    if state.len() > 0 {
                        self.wake.notify_one();
                    }
                    let reason = state.reason(&key, now);
                    return (key, reason.cause, reason.since);
                }
                state.next_due()
            };
            match due {
                Some(at) => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep_until(at.into()) => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Marks a key as done: its failures are reset.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.forgive(key);
        state.done(key, Instant::now());
        drop(state);
        self.wake.notify_one();
    }

    /// Marks a key as failed: it is added again with exponential backoff. Returns the delay.
    pub fn failed(&self, key: &K) -> Duration {
        let mut state = self.state.lock();
        let now = Instant::now();
        let delay = state.failed(key, now);
        state.done(key, now);
        drop(state);
        self.wake.notify_one();
        delay
    }

    /// Marks a key as panicked: it is added again after a long delay, which is returned, or earlier when it changes.
    pub fn panicked(&self, key: &K) -> Duration {
        let mut state = self.state.lock();
        let now = Instant::now();
        let delay = state.panicked(key, now);
        state.done(key, now);
        drop(state);
        self.wake.notify_one();
        delay
    }

    /// How many keys wait to be taken now.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Whether no key waits to be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Item> MeasuredQueue for Queue<K> {
    fn stats(&self) -> QueueStats {
        self.state.lock().stats(Instant::now())
    }
}
