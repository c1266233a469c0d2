//! The work queue between informers and a controller: a key waits at most once, is never worked on twice at the same
//! time, comes back later after a failure, and later still after the next one.

use crate::queue_metrics::{BUCKETS, MeasuredQueue, QueueStats};
use coracle_proto::exposition::Histogram;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The first delay after a failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay after failures: what was repaired elsewhere is picked up within it.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The delays after the first panic; they double with each further one. A key that changes is tried earlier, though not at
/// once: a turn that writes before it panics would otherwise never end.
const FIRST_REST: Duration = Duration::from_secs(10);
const FIRST_REST_OF_CHANGED: Duration = Duration::from_secs(1);
/// The longest of them.
const LONGEST_REST: Duration = Duration::from_secs(300);

/// What can be queued.
pub trait Item: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> Item for T {}

/// The queue's rules without clock or tasks; callers pass the time.
#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, or to go there once done, and since when.
    dirty: HashMap<K, Instant>,
    /// Keys that are worked on, and since when.
    processing: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    /// Keys whose work panicked: how often, and when they may be tried again at the earliest.
    resting: HashMap<K, (u32, Instant)>,
    delayed: BinaryHeap<Reverse<(Instant, K)>>,
    /// The earliest due time of each delayed key; entries of `delayed` that differ are stale.
    due: HashMap<K, Instant>,
    /// Delays of at least this length are not scheduled.
    ignored: Option<Duration>,
    adds: u64,
    retries: u64,
    waited: Histogram,
    worked: Histogram,
}

impl<K: Item> State<K> {
    fn add(&mut self, key: K, now: Instant) -> bool {
        if let Some((_, earliest)) = self.resting.get(&key).copied().filter(|(_, earliest)| *earliest > now) {
            self.add_at(key, earliest);
            return false;
        }
        self.due.remove(&key);
        if self.dirty.contains_key(&key) {
            return false;
        }
        self.adds += 1;
        self.dirty.insert(key.clone(), now);
        if self.processing.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Adds a key after a delay, unless delays of this length are ignored.
    fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        if self.ignored.is_some_and(|limit| delay >= limit) {
            return;
        }
        // A delay that ends after the clock does is none that anybody waits for.
        if let Some(at) = now.checked_add(delay) {
            self.add_at(key, at);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.delayed.push(Reverse((at, key)));
    }

    /// Moves what is due to the ready keys and takes the first of those.
    fn take(&mut self, now: Instant) -> Option<K> {
        while self.delayed.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((at, key))) = self.delayed.pop()
                && self.due.get(&key) == Some(&at)
            {
                // A key that rests is delayed anew by `add`: its old time must not stand in the way.
                self.due.remove(&key);
                self.add(key, now);
            }
        }
        let key = self.ready.pop_front()?;
        if let Some(since) = self.dirty.remove(&key) {
            self.waited.observe(now.saturating_duration_since(since).as_secs_f64());
        }
        self.processing.insert(key.clone(), now);
        Some(key)
    }

    fn done(&mut self, key: &K, now: Instant) {
        if let Some(since) = self.processing.remove(key) {
            self.worked.observe(now.saturating_duration_since(since).as_secs_f64());
        }
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }

    fn failed(&mut self, key: &K, now: Instant) -> Duration {
        let count = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY.saturating_mul(1 << (*count).min(20)).min(LONGEST_DELAY);
        *count += 1;
        self.retries += 1;
        self.add_at(key.clone(), now + delay);
        delay
    }

    fn panicked(&mut self, key: &K, now: Instant) -> Duration {
        let count = self.resting.get(key).map_or(0, |(count, _)| *count);
        let rest = |first: Duration| first.saturating_mul(1 << count.min(20)).min(LONGEST_REST);
        let (earliest, delay) = (now + rest(FIRST_REST_OF_CHANGED), rest(FIRST_REST));
        self.resting.insert(key.clone(), (count.saturating_add(1), earliest));
        // What changed meanwhile may have helped.
        if self.dirty.remove(key).is_some() {
            self.add_at(key.clone(), earliest);
        } else {
            self.add_after(key.clone(), delay, now);
        }
        delay
    }

    fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }
}

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
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashMap::new(),
            failures: HashMap::new(),
            resting: HashMap::new(),
            delayed: BinaryHeap::new(),
            due: HashMap::new(),
            ignored: None,
            adds: 0,
            retries: 0,
            waited: Histogram::new(&BUCKETS),
            worked: Histogram::new(&BUCKETS),
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    /// Adds a key; one that waits already is not added twice, one being worked on comes again afterwards.
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
        loop {
            let due = {
                let mut state = self.state.lock();
                if let Some(key) = state.take(Instant::now()) {
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return key;
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
        state.failures.remove(key);
        state.resting.remove(key);
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
        self.state.lock().ready.len()
    }

    /// Whether no key waits to be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Item> MeasuredQueue for Queue<K> {
    fn stats(&self) -> QueueStats {
        let (state, now) = (self.state.lock(), Instant::now());
        let at_work =
            || state.processing.values().map(|since| now.saturating_duration_since(*since).as_secs_f64());
        QueueStats {
            depth: state.ready.len(),
            adds: state.adds,
            retries: state.retries,
            waited: state.waited.clone(),
            worked: state.worked.clone(),
            unfinished: at_work().sum(),
            longest: at_work().fold(0.0, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    fn state() -> State<&'static str> {
        Queue::new().state.into_inner()
    }

    #[test]
    fn a_key_waits_once_and_is_worked_on_by_one() {
        let mut s = state();
        let now = Instant::now();
        assert!(s.add("a", now));
        assert!(!s.add("a", now));
        assert_eq!(s.take(now), Some("a"));
        assert!(!s.add("a", now), "while worked on it must wait");
        assert_eq!(s.take(now), None);
        s.done(&"a", now);
        assert_eq!(s.take(now), Some("a"), "what came meanwhile is not lost");
        s.done(&"a", now);
        assert_eq!(s.take(now), None);
    }

    #[test]
    fn delays_double_and_are_capped() {
        let mut s = state();
        let now = Instant::now();
        let delays: Vec<u128> = (0..16).map(|_| s.failed(&"a", now).as_millis()).collect();
        assert_eq!(&delays[..4], &[5, 10, 20, 40]);
        assert_eq!(delays[15], LONGEST_DELAY.as_millis());
    }

    #[test]
    fn the_earliest_delay_counts_and_an_add_overtakes_it() {
        let mut s = state();
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        s.add_at("a", at(50));
        s.add_at("a", at(10));
        s.add_at("a", at(90));
        assert_eq!(s.take(at(9)), None);
        assert_eq!(s.take(at(10)), Some("a"));
        s.done(&"a", now);
        assert_eq!(s.take(at(100)), None, "later delays of the same key are stale");
        s.add_at("b", at(200));
        s.add("b", now);
        assert_eq!(s.take(at(100)), Some("b"));
        s.done(&"b", now);
        assert_eq!(s.take(at(300)), None);
    }

    #[test]
    fn a_key_that_panics_rests_and_is_tried_earlier_when_it_changes() {
        let mut s = state();
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        s.add("a", now);
        s.add("b", now);
        assert_eq!(s.take(now), Some("a"));
        assert_eq!(s.panicked(&"a", now), FIRST_REST);
        s.done(&"a", now);
        assert_eq!(s.take(now), Some("b"), "others go on");
        s.done(&"b", now);
        assert!(!s.add("a", at(10)), "changes do not wake it at once");
        assert!(!s.add("a", at(20)));
        assert_eq!(s.take(at(999)), None);
        assert_eq!(s.take(at(1000)), Some("a"));
        // It changes while it is worked on, too.
        s.add("a", at(1000));
        assert_eq!(s.panicked(&"a", at(1000)), FIRST_REST * 2);
        s.done(&"a", at(1000));
        assert_eq!(s.take(at(2999)), None);
        assert_eq!(s.take(at(3000)), Some("a"));
        for _ in 0..40 {
            s.panicked(&"a", at(3000));
        }
        s.done(&"a", at(3000));
        assert_eq!(s.take(now + LONGEST_REST), None);
        assert_eq!(s.take(at(3000) + LONGEST_REST), Some("a"), "it never rests longer");
    }

    #[test]
    fn ignored_delays_leave_keys_to_events() {
        let queue: Queue<&'static str> = Queue::new();
        queue.ignore_delays_from(FIRST_REST);
        queue.add_after("late", FIRST_REST);
        queue.add_after("soon", FIRST_REST / 2);
        let mut s = queue.state.into_inner();
        let now = Instant::now();
        assert_eq!(s.take(now + LONGEST_REST), Some("soon"));
        assert_eq!(s.panicked(&"soon", now), FIRST_REST);
        s.done(&"soon", now);
        assert_eq!(s.take(now + LONGEST_REST), None, "nothing changed");
        s.add("soon", now);
        assert_eq!(s.take(now + LONGEST_REST), Some("soon"), "a change shortens the rest");
        s.failed(&"soon", now);
        s.done(&"soon", now);
        assert_eq!(s.take(now + LONGEST_REST), Some("soon"), "failures are retried");
    }

    #[tokio::test]
    async fn workers_get_every_key() {
        let queue = std::sync::Arc::new(Queue::new());
        let seen = std::sync::Arc::new(Mutex::new(HashSet::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (queue, seen) = (queue.clone(), seen.clone());
            tasks.spawn(async move {
                loop {
                    let key: u32 = queue.take().await;
                    seen.lock().insert(key);
                    queue.done(&key);
                }
            });
        }
        for n in 0..100 {
            if n % 2 == 0 { queue.add(n) } else { queue.add_after(n, Duration::from_millis(3)) }
        }
        let all = async {
            while seen.lock().len() < 100 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    }

    #[test]
    fn a_queue_counts_what_goes_through_it() {
        let queue: Queue<&'static str> = Queue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let taken = queue.state.lock().take(Instant::now() + Duration::from_secs(1));
        assert_eq!(taken, Some("a"));
        let counts = queue.stats();
        assert_eq!((counts.depth, counts.adds, counts.retries, counts.waited.count()), (1, 2, 0, 1));
        queue.failed(&"a");
        let counts = queue.stats();
        assert_eq!((counts.retries, counts.worked.count(), counts.unfinished), (1, 1, 0.0));
    }
}
