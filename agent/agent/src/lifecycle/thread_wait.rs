//! Time in which a busy agent had no thread for a pod.

use coracle_trace::{Scope, Stage, current};
use std::time::{Duration, Instant};

/// A shorter wait of a job for a thread is not recorded.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// Records that a job, or its result, has waited for a thread since then, unless that was short. To be called within the scope of the pod.
pub(super) fn waited_for_thread(since: Instant) {
    if since.elapsed() < SHORT_WAIT {
        return;
    }
    let Scope { recorder, span, subject, revision, .. } = current();
    // What belongs to no start, end or change would be an operation of its own.
    if span.is_none() {
        return;
    }
    let Some(clock) = recorder.clock() else { return };
    recorder.span_at(Stage::ThreadWait, span, (subject, revision), clock.of(since), clock.now(), "", 0);
}
