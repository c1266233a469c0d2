//! When a segment has its age.

use std::time::Duration;

use super::{Keep, SEGMENT_AGE, nanos, now};

/// Times of the disk and of the clock are not exact: nobody looks again sooner.
const SOONEST: Duration = Duration::from_secs(1);

impl Keep {
    /// How long it is until [`Keep::tend`] seals or deletes a segment for its age, if nothing is appended; `None` if there is none.
    pub(crate) fn due(&self) -> Option<Duration> {
        let segments = self.lock();
        let written = segments.open.as_ref().filter(|(open, _)| open.end > 0);
        let sealed = written.map(|(_, since)| SEGMENT_AGE.saturating_sub(since.elapsed()));
        let deleted = segments.sealed.first().map(|oldest| {
            let until = oldest.last.saturating_add(nanos(self.limits.age));
            Duration::from_nanos(until.saturating_sub(now()))
        });
        sealed.into_iter().chain(deleted).min().map(|due| due.max(SOONEST))
    }
}
