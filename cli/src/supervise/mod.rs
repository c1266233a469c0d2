//! Supervision of long-lived tasks. A task that panics is restarted with exponential backoff; one that keeps failing is
//! reported as dead to health checks. An object that makes a task panic is quarantined: the task continues with the other
//! objects.

// Catching panics.
mod panics;
// Objects that made a task panic.
mod quarantine;
#[cfg(test)]
mod tests;

pub use panics::{Panicked, catch_panic, catch_panic_async};
pub use quarantine::{Quarantined, Subject};

use futures::FutureExt;
use parking_lot::Mutex;
use quarantine::Quarantine;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Backoff of restarts, and when a task counts as dead.
#[derive(Debug, Clone, Copy)]
pub struct RestartBackoff {
    /// Delay after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// A task that ran this long has recovered.
    pub healthy: Duration,
    /// Consecutive failures after which a task counts as dead. It is still restarted.
    pub most: u32,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(30),
            healthy: Duration::from_secs(60),
            most: 5,
        }
    }
}

impl RestartBackoff {
    /// The delay after `failures` consecutive failures.
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1 << failures.saturating_sub(1).min(20);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// Whether a task is meant to end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    Forever,
    UntilDone,
}

/// A task that failed and has not recovered yet.
struct Failing {
    task: String,
    part: Option<&'static str>,
    failures: u32,
    why: String,
    /// Since when it runs again; `None` while it waits.
    since: Option<Instant>,
}

#[derive(Default)]
struct Shared {
    backoff: RestartBackoff,
    panics: Mutex<BTreeMap<String, u64>>,
    failing: Mutex<HashMap<u64, Failing>>,
    /// Parts of the program that have had a task.
    parts: Mutex<BTreeSet<&'static str>>,
    next: std::sync::atomic::AtomicU64,
    quarantine: Quarantine,
}

/// The supervisor of a program; clones are the same one, and so are those for a part of the program.
#[derive(Clone, Default)]
pub struct Supervisor(Arc<Shared>, Option<&'static str>);

/// Removes what is known of a task when it ends or is dropped.
struct Entry {
    supervisor: Supervisor,
    id: u64,
    task: String,
    failures: u32,
    begun: Instant,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.supervisor.0.failing.lock().remove(&self.id);
    }
}

impl Entry {
    fn begins(&mut self) {
        self.begun = Instant::now();
        if let Some(failing) = self.supervisor.0.failing.lock().get_mut(&self.id) {
            failing.since = Some(self.begun);
        }
    }

    /// Records how the task ended. Returns the delay before its restart, or `None` when it is done.
    fn ended(&mut self, outcome: Result<(), Panicked>, lifetime: Lifetime) -> Option<Duration> {
        let why = match outcome {
            Ok(()) if lifetime == Lifetime::UntilDone => return None,
            Ok(()) => "it ended".to_owned(),
            Err(panicked) => {
                self.supervisor.count(&self.task);
                panicked.to_string()
            }
        };
        let backoff = self.supervisor.0.backoff;
        self.failures = if self.begun.elapsed() >= backoff.healthy { 1 } else { self.failures + 1 };
        let (task, failures, pause) = (self.task.clone(), self.failures, backoff.delay(self.failures));
        tracing::error!(task, failures, ?pause, why, "task failed, will restart");
        let failing = Failing { task, part: self.supervisor.1, failures, why, since: None };
        self.supervisor.0.failing.lock().insert(self.id, failing);
        Some(pause)
    }
}

impl Supervisor {
    /// A supervisor with another backoff than the default.
    pub fn with_backoff(backoff: RestartBackoff) -> Self {
        Self(Arc::new(Shared { backoff, ..Shared::default() }), None)
    }

    /// The same supervisor for the tasks of a part of the program, which health can be asked for.
    pub fn of_part(&self, part: &'static str) -> Self {
        Self(self.0.clone(), Some(part))
    }

    /// Whether a part of the program has had a task.
    pub fn has_begun(&self, part: &str) -> bool {
        self.0.parts.lock().contains(part)
    }

    fn enter(&self, task: &str) -> Entry {
        self.0.panics.lock().entry(task.to_owned()).or_default();
        self.0.parts.lock().extend(self.1);
        let id = self.0.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Entry { supervisor: self.clone(), id, task: task.to_owned(), failures: 0, begun: Instant::now() }
    }

    /// Runs a task that is not meant to end. After every failure `make` creates it again, with fresh state.
    pub async fn keep<F: Future<Output = ()>>(self, task: impl Into<String>, make: impl FnMut() -> F) {
        self.run(task.into(), Lifetime::Forever, make).await;
    }

    /// Runs a task until it returns; after a panic it is created again.
    pub async fn finish<F: Future<Output = ()>>(self, task: impl Into<String>, make: impl FnMut() -> F) {
        self.run(task.into(), Lifetime::UntilDone, make).await;
    }

    async fn run<F: Future<Output = ()>>(
        self,
        task: String,
        lifetime: Lifetime,
        mut make: impl FnMut() -> F,
    ) {
        let mut entry = self.enter(&task);
        loop {
            entry.begins();
            // What makes the task may panic, too.
            let outcome = match catch_panic(&mut make) {
                Ok(future) => catch_panic_async(future).await,
                Err(panicked) => Err(panicked),
            };
            let Some(pause) = entry.ended(outcome, lifetime) else { return };
            tokio::time::sleep(pause).await;
        }
    }

    /// Spawns a task that never ends by itself; see [`Supervisor::keep`].
    pub fn spawn<F>(
        &self,
        task: impl Into<String>,
        make: impl FnMut() -> F + Send + 'static,
    ) -> tokio::task::JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.clone().keep(task.into(), make))
    }

    /// Runs blocking work on its own thread until it returns; after a panic it is started again.
    pub fn thread(
        &self,
        task: impl Into<String>,
        mut work: impl FnMut() + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let task = task.into();
        let mut entry = self.enter(&task);
        std::thread::Builder::new().name(task).spawn(move || {
            loop {
                entry.begins();
                let outcome = catch_panic(&mut work);
                let Some(pause) = entry.ended(outcome, Lifetime::UntilDone) else { return };
                std::thread::sleep(pause);
            }
        })
    }

    /// Awaits work on one object and catches its panic. A panic quarantines the object, success releases it.
    pub fn isolate<T>(
        &self,
        task: &str,
        subject: impl Fn() -> Subject,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Panicked>> {
        catch_panic_async(work).map(move |outcome| self.settle(task, subject, outcome))
    }

    /// The same for work that does not await; see [`Supervisor::isolate`].
    pub fn isolate_sync<T>(
        &self,
        task: &str,
        subject: impl Fn() -> Subject,
        work: impl FnOnce() -> T,
    ) -> Result<T, Panicked> {
        self.settle(task, subject, catch_panic(work))
    }

    fn settle<T>(
        &self,
        task: &str,
        subject: impl Fn() -> Subject,
        outcome: Result<T, Panicked>,
    ) -> Result<T, Panicked> {
        match &outcome {
            Ok(_) => self.release(task, subject),
            Err(panicked) => self.quarantine(task, subject(), panicked),
        }
        outcome
    }

    /// Counts and logs a panic that the task itself handled.
    pub fn panicked(&self, task: &str, panicked: &Panicked) {
        self.count(task);
        tracing::error!(task, error = %panicked, "task panicked, continuing");
    }

    /// Puts an object into quarantine that made a task panic; counts and logs the panic.
    pub fn quarantine(&self, task: &str, subject: Subject, panicked: &Panicked) {
        self.count(task);
        tracing::error!(task, object = %subject, error = %panicked, "object quarantined: it made a task panic");
        self.0.quarantine.put(task, subject, panicked.to_string());
    }

    /// Removes an object from a task's quarantine: it was handled, or it was deleted.
    pub fn release(&self, task: &str, subject: impl FnOnce() -> Subject) {
        self.0.quarantine.release(task, subject);
    }

    fn count(&self, task: &str) {
        *self.0.panics.lock().entry(task.to_owned()).or_default() += 1;
    }

    /// The objects in quarantine.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.0.quarantine.all()
    }

    /// Panics so far, by task.
    pub fn panics(&self) -> Vec<(String, u64)> {
        self.0.panics.lock().iter().map(|(task, count)| (task.clone(), *count)).collect()
    }

    /// Tasks that failed so often in a row that they count as dead, and why they did, sorted.
    pub fn dead(&self) -> Vec<(String, String)> {
        self.dead_among(|_| true)
    }

    /// The dead tasks of a part of the program.
    pub fn dead_of(&self, part: &str) -> Vec<(String, String)> {
        self.dead_among(|failing| failing.part == Some(part))
    }

    fn dead_among(&self, asked: impl Fn(&Failing) -> bool) -> Vec<(String, String)> {
        let backoff = self.0.backoff;
        let recovered = |f: &Failing| f.since.is_some_and(|since| since.elapsed() >= backoff.healthy);
        let failing = self.0.failing.lock();
        let dead = failing.values().filter(|f| asked(f) && f.failures >= backoff.most && !recovered(f));
        let mut dead: Vec<_> = dead.map(|f| (f.task.clone(), f.why.clone())).collect();
        dead.sort();
        dead.dedup_by(|a, b| a.0 == b.0);
        dead
    }
}
