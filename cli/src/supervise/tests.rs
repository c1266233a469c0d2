#![allow(clippy::unwrap_used)]
use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;

const FAST: RestartBackoff = RestartBackoff {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(4),
    healthy: Duration::from_millis(80),
    most: 3,
};

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

#[test]
fn pauses_double_and_are_capped() {
    let backoff = RestartBackoff::default();
    let pauses: Vec<u128> = (1..=12).map(|failures| backoff.delay(failures).as_millis()).collect();
    assert_eq!(&pauses[..4], &[100, 200, 400, 800]);
    assert_eq!(pauses[11], 30_000);
    assert_eq!(backoff.delay(u32::MAX), backoff.longest);
}

#[tokio::test]
async fn a_task_that_panics_twice_works_the_third_time() {
    let supervisor = Supervisor::with_backoff(FAST);
    let (runs, works) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (counted, working) = (runs.clone(), works.clone());
    let task = supervisor.spawn("worker", move || {
        let (runs, works) = (counted.clone(), working.clone());
        async move {
            if runs.fetch_add(1, Ordering::SeqCst) < 2 {
                panic!("not yet");
            }
            works.notify_one();
            std::future::pending::<()>().await;
        }
    });
    tokio::time::timeout(Duration::from_secs(10), works.notified()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(supervisor.panics(), [("worker".to_owned(), 2)]);
    assert!(supervisor.dead().is_empty(), "two failures are no death");
    task.abort();
}

#[tokio::test]
async fn a_task_that_stays_dead_is_named_until_it_recovers_or_is_stopped() {
    let supervisor = Supervisor::with_backoff(FAST);
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let state = broken.clone();
    let task = supervisor.spawn("informer pods", move || {
        let broken = state.clone();
        async move {
            if broken.load(Ordering::SeqCst) {
                panic!("no way");
            }
            std::future::pending::<()>().await;
        }
    });
    until("dead", || !supervisor.dead().is_empty()).await;
    let (name, why) = supervisor.dead().remove(0);
    assert_eq!(name, "informer pods");
    assert!(why.starts_with("no way (at "), "{why}");
    broken.store(false, Ordering::SeqCst);
    until("recovered", || supervisor.dead().is_empty()).await;
    broken.store(true, Ordering::SeqCst);
    task.abort();
    let other = supervisor.spawn("ender", || async {});
    until("a task that ends is dead, too", || !supervisor.dead().is_empty()).await;
    assert_eq!(supervisor.dead(), [("ender".to_owned(), "it ended".to_owned())]);
    other.abort();
    let _ = other.await;
    assert!(supervisor.dead().is_empty(), "what is stopped is not dead");
}

#[tokio::test]
async fn a_task_that_is_done_is_not_started_again() {
    let supervisor = Supervisor::with_backoff(FAST);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let finished = supervisor.clone().finish("once", move || {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        assert!(run > 0, "even what makes the task may panic");
        async {}
    });
    tokio::time::timeout(Duration::from_secs(10), finished).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert!(supervisor.dead().is_empty());
}

#[test]
fn a_thread_goes_on_after_a_panic() {
    let supervisor = Supervisor::with_backoff(FAST);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let thread = supervisor.thread("writer", move || {
        assert!(counted.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
    });
    thread.unwrap().join().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(supervisor.panics(), [("writer".to_owned(), 1)]);
}

#[tokio::test]
async fn an_object_is_in_quarantine_until_it_is_handled() {
    let supervisor = Supervisor::default();
    let subject = || Subject::new("pods", "default", "x");
    let failed = supervisor.isolate("scheduler", subject, async { panic!("odd") }).await.map(|()| 0);
    assert_eq!(failed.unwrap_err().message, "odd");
    let handled = supervisor.isolate("endpoints", subject, async { 3 }).await;
    assert_eq!(handled, Ok(3), "another task may be able to handle it");
    let all = supervisor.quarantined();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].subject.to_string(), all[0].task.as_str()), ("pods default/x".into(), "scheduler"));
    assert!(all[0].why.starts_with("odd (at "));
    assert_eq!(supervisor.isolate_sync("scheduler", subject, || 4), Ok(4));
    assert!(supervisor.quarantined().is_empty());
    assert_eq!(supervisor.panics(), [("scheduler".to_owned(), 1)]);
}
