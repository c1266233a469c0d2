#![allow(clippy::unwrap_used)]
use super::state::{FIRST_REST, LONGEST_DELAY, LONGEST_REST, Reason};
use super::*;
use coracle_trace::{Moment, Rank, Uid, caused_by};
use std::collections::HashSet;

impl State<&'static str> {
    fn add_at(&mut self, key: &'static str, at: Instant) {
        self.delay(key, at, Reason::current(at));
    }
}

fn cause(revision: u64, rank: Rank) -> Cause {
    Cause { uid: Uid(7), revision, rank, since: Moment(revision) }
}

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

#[test]
fn the_most_important_change_is_the_cause_of_a_turn() {
    let mut s = state();
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    for (revision, rank) in [(1, Rank::Related), (2, Rank::Spec), (3, Rank::Related), (4, Rank::Resync)] {
        caused_by(cause(revision, rank), || s.add("a", at(revision)));
    }
    assert_eq!(s.take(at(9)), Some("a"));
    let reason = s.reason(&"a", at(9));
    assert_eq!((reason.cause, reason.since), (cause(2, Rank::Spec), at(2)));
    s.done(&"a", at(9));
    s.add("a", at(10));
    assert_eq!(s.take(at(10)), Some("a"));
    assert_eq!(s.reason(&"a", at(10)).cause, Cause::NONE, "the next turn is about something else");
}

#[test]
fn a_retry_has_the_cause_of_the_turn_that_failed() {
    let mut s = state();
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    caused_by(cause(2, Rank::Spec), || s.add("a", now));
    assert_eq!(s.take(now), Some("a"));
    s.failed(&"a", at(1));
    s.done(&"a", at(1));
    assert_eq!(s.take(at(100)), Some("a"));
    let reason = s.reason(&"a", at(100));
    assert_eq!((reason.cause.revision, reason.cause.rank, reason.since), (2, Rank::Retry, at(1)));
    // Added while it is worked on: by nothing, then by a change.
    s.add("a", at(101));
    s.done(&"a", at(102));
    assert_eq!(s.take(at(103)), Some("a"));
    let reason = s.reason(&"a", at(103));
    assert_eq!((reason.cause.revision, reason.cause.rank, reason.since), (2, Rank::Retry, at(101)));
    caused_by(cause(5, Rank::Related), || s.add("a", at(104)));
    s.done(&"a", at(105));
    assert_eq!(s.take(at(106)), Some("a"));
    assert_eq!(s.reason(&"a", at(106)).cause, cause(5, Rank::Related));
}

#[test]
fn a_timer_keeps_the_cause_and_is_its_own_without_one() {
    let mut s = state();
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let delay = Duration::from_millis(40);
    caused_by(cause(2, Rank::Spec), || s.add_after("a", delay, now));
    s.add_after("b", delay, now);
    assert_eq!((s.take(at(50)), s.take(at(50))), (Some("a"), Some("b")));
    let (a, b) = (s.reason(&"a", at(50)), s.reason(&"b", at(50)));
    assert_eq!((a.cause.revision, a.cause.rank, a.since), (2, Rank::Timer, now));
    assert_eq!((b.cause.is_none(), b.cause.rank, b.since), (true, Rank::Timer, at(40)));
    // A change that overtakes the delay is the cause.
    s.done(&"a", at(50));
    s.add_after("a", delay, at(50));
    caused_by(cause(9, Rank::Related), || s.add("a", at(60)));
    assert_eq!(s.take(at(61)), Some("a"));
    assert_eq!(s.reason(&"a", at(61)).cause, cause(9, Rank::Related));
}

#[tokio::test]
async fn workers_get_causes() {
    let queue = Queue::new();
    caused_by(cause(3, Rank::Deleted), || queue.add("a"));
    let (key, of, since) = queue.take_caused().await;
    assert_eq!((key, of), ("a", cause(3, Rank::Deleted)));
    assert!(since <= Instant::now());
}
