//! The queue's rules without clock or tasks; callers pass the time.

use super::Item;
use crate::queue_metrics::{BUCKETS, QueueStats};
use coracle_proto::exposition::Histogram;
use coracle_trace::{Cause, Rank};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The first delay after a failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay after failures: what was repaired elsewhere is picked up within it.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The delays after the first panic; they double with each further one. A key that changes is tried earlier, though not at
/// once: a turn that writes before it panics would otherwise never end.
pub(super) const FIRST_REST: Duration = Duration::from_secs(10);
const FIRST_REST_OF_CHANGED: Duration = Duration::from_secs(1);
/// The longest of them.
pub(super) const LONGEST_REST: Duration = Duration::from_secs(300);

/// Why a key waits, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) cause: Cause,
    pub(super) since: Instant,
}

impl Reason {
    /// The change that is being handled now, if any.
    pub(super) fn current(now: Instant) -> Self {
        Self { cause: coracle_trace::cause(), since: now }
    }

    /// A delay: what follows a change is waited for since the delay was asked for, anything else is due when it is over.
    pub(super) fn timer(now: Instant, at: Instant) -> Self {
        let cause = Cause { rank: Rank::Timer, ..coracle_trace::cause() };
        Self { cause, since: if cause.is_none() { at } else { now } }
    }

    /// The same cause once more.
    fn again(self, now: Instant) -> Self {
        Self { cause: Cause { rank: Rank::Retry, ..self.cause }, since: now }
    }

    /// The more important of two; of equal ones the later.
    fn or(self, later: Self) -> Self {
        if self.cause.or(later.cause) == later.cause { later } else { self }
    }
}

#[derive(Debug)]
pub(super) struct State<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, or to go there once done, and since when.
    dirty: HashMap<K, (Instant, Reason)>,
    /// Keys that are worked on, and since when.
    processing: HashMap<K, (Instant, Reason)>,
    failures: HashMap<K, u32>,
    /// Keys whose work panicked: how often, and when they may be tried again at the earliest.
    resting: HashMap<K, (u32, Instant)>,
    delayed: BinaryHeap<Reverse<(Instant, K)>>,
    /// The earliest due time of each delayed key; entries of `delayed` that differ are stale.
    due: HashMap<K, (Instant, Reason)>,
    /// Delays of at least this length are not scheduled.
    pub(super) ignored: Option<Duration>,
    adds: u64,
    retries: u64,
    waited: Histogram,
    worked: Histogram,
}

impl<K: Item> State<K> {
    pub(super) fn new() -> Self {
        Self {
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
        }
    }

    pub(super) fn add(&mut self, key: K, now: Instant) -> bool {
        self.add_for(key, now, Reason::current(now))
    }

    fn add_for(&mut self, key: K, now: Instant, mut reason: Reason) -> bool {
        if let Some((_, earliest)) = self.resting.get(&key).copied().filter(|(_, earliest)| *earliest > now) {
            self.delay(key, earliest, reason);
            return false;
        }
        if let Some((_, earlier)) = self.due.remove(&key) {
            reason = earlier.or(reason);
        }
        if let Some((_, pending)) = self.dirty.get_mut(&key) {
            *pending = pending.or(reason);
            return false;
        }
        self.adds += 1;
        let turn = self.processing.get(&key).map(|(_, turn)| *turn);
        if let Some(turn) = turn.filter(|turn| !turn.cause.is_none()) {
            reason = turn.again(now).or(reason);
        }
        self.dirty.insert(key.clone(), (now, reason));
        if turn.is_some() {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Adds a key after a delay, unless delays of this length are ignored.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        // A delay that ends after the clock does is none that anybody waits for.
        if let Some(at) = now.checked_add(delay).filter(|_| !self.ignores(delay)) {
            self.delay(key, at, Reason::timer(now, at));
        }
    }

    fn ignores(&self, delay: Duration) -> bool {
        self.ignored.is_some_and(|limit| delay >= limit)
    }

    pub(super) fn delay(&mut self, key: K, at: Instant, mut reason: Reason) {
        if let Some((due, earlier)) = self.due.get_mut(&key) {
            reason = earlier.or(reason);
            if *due <= at {
                *earlier = reason;
                return;
            }
        }
        self.due.insert(key.clone(), (at, reason));
        self.delayed.push(Reverse((at, key)));
    }

    /// Moves what is due to the ready keys and takes the first of those.
    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        while self.delayed.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((at, key))) = self.delayed.pop()
                && self.due.get(&key).is_some_and(|(due, _)| *due == at)
                // A key that rests is delayed anew by `add_for`: its old time must not stand in the way.
                && let Some((_, reason)) = self.due.remove(&key)
            {
                self.add_for(key, now, reason);
            }
        }
        let key = self.ready.pop_front()?;
        let mut reason = Reason { cause: Cause::NONE, since: now };
        if let Some((since, pending)) = self.dirty.remove(&key) {
            self.waited.observe(now.saturating_duration_since(since).as_secs_f64());
            reason = Reason { since: pending.since.min(now), ..pending };
        }
        self.processing.insert(key.clone(), (now, reason));
        Some(key)
    }

    /// Why a key that was taken is worked on, and since when it waited for that.
    pub(super) fn reason(&self, key: &K, now: Instant) -> Reason {
        let none = Reason { cause: Cause::NONE, since: now };
        self.processing.get(key).map_or(none, |(_, reason)| *reason)
    }

    /// Resets the failures of a key.
    pub(super) fn forgive(&mut self, key: &K) {
        self.failures.remove(key);
        self.resting.remove(key);
    }

    pub(super) fn done(&mut self, key: &K, now: Instant) {
        if let Some((since, _)) = self.processing.remove(key) {
            self.worked.observe(now.saturating_duration_since(since).as_secs_f64());
        }
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }

    pub(super) fn failed(&mut self, key: &K, now: Instant) -> Duration {
        let count = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY.saturating_mul(1 << (*count).min(20)).min(LONGEST_DELAY);
        *count += 1;
        self.retries += 1;
        let reason = self.reason(key, now).again(now);
        self.delay(key.clone(), now + delay, reason);
        delay
    }

    pub(super) fn panicked(&mut self, key: &K, now: Instant) -> Duration {
        let count = self.resting.get(key).map_or(0, |(count, _)| *count);
        let rest = |first: Duration| first.saturating_mul(1 << count.min(20)).min(LONGEST_REST);
        let (earliest, delay) = (now + rest(FIRST_REST_OF_CHANGED), rest(FIRST_REST));
        self.resting.insert(key.clone(), (count.saturating_add(1), earliest));
        // What changed meanwhile may have helped.
        if let Some((_, pending)) = self.dirty.remove(key) {
            self.delay(key.clone(), earliest, pending);
        } else if !self.ignores(delay) {
            let reason = self.reason(key, now).again(now);
            self.delay(key.clone(), now + delay, reason);
        }
        delay
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// How many keys wait to be taken now.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn stats(&self, now: Instant) -> QueueStats {
        let at_work =
            || self.processing.values().map(|(since, _)| now.saturating_duration_since(*since).as_secs_f64());
        QueueStats {
            depth: self.ready.len(),
            adds: self.adds,
            retries: self.retries,
            waited: self.waited.clone(),
            worked: self.worked.clone(),
            unfinished: at_work().sum(),
            longest: at_work().fold(0.0, f64::max),
        }
    }
}
