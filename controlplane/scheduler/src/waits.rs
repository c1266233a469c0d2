//! How long a pod waited in the queue, and for what. Recorded for people; no decision depends on it.

use coracle_trace::{Cause, Stage};
use std::time::Instant;

/// A time that a pod spent in one part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// Which part.
    pub stage: Stage,
    /// Its begin.
    pub since: Instant,
    /// Its end.
    pub until: Instant,
    /// What ended it; empty when it was the pod's turn.
    pub event: &'static str,
}

/// Why a pod is in the queue, and the times that it waited since its last attempt.
#[derive(Debug)]
pub struct Waits {
    cause: Cause,
    entered: Instant,
    /// When it could be tried for the first time.
    ready: Option<Instant>,
    past: Vec<Waited>,
}

impl Waits {
    /// Of a pod that comes into the queue because of the change that is being handled.
    pub fn enqueued() -> Self {
        Self { cause: coracle_trace::cause(), entered: Instant::now(), ready: None, past: Vec::new() }
    }

    /// The pod changed.
    pub fn changed(&mut self) {
        self.cause = self.cause.or(coracle_trace::cause());
    }

    /// The pod comes into a part of the queue from nowhere: it is new, or was tried.
    pub fn begin(&mut self, is_ready: bool) {
        self.past.clear();
        self.enter(Instant::now(), is_ready);
    }

    /// The pod moves from one part of the queue to another, or is to be tried.
    pub fn leave(&mut self, stage: Stage, event: &'static str, is_ready: bool) {
        let until = Instant::now();
        self.past.push(Waited { stage, since: self.entered, until, event });
        self.enter(until, is_ready);
    }

    fn enter(&mut self, now: Instant, is_ready: bool) {
        self.entered = now;
        if is_ready {
            self.ready.get_or_insert(now);
        }
    }

    /// When the pod could be tried for the first time; scheduling gates are no longer in its way since then.
    pub fn ready_since(&self) -> Option<Instant> {
        self.ready
    }

    /// The cause of the next attempt, and how long it was waited for. The times are given once.
    pub fn take(&mut self) -> (Cause, Vec<Waited>) {
        (self.cause, std::mem::take(&mut self.past))
    }
}
