//! Timers of the scheduling loop.

use std::time::Duration;

/// Timers that start work which no event asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    /// Interval of the check for pods that are unschedulable for long.
    pub(crate) flush: Duration,
    /// How long an object rests after it made the scheduler panic, unless it changes; doubles with each further panic.
    pub(crate) rest: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self { flush: Duration::from_secs(30), rest: Duration::from_secs(10) }
    }
}
