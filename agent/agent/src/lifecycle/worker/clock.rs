//! Times of a worker.

use jiff::Timestamp;
use std::time::{Duration, Instant};

/// Upper limit of waits: `Instant` cannot represent every value that users may write.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Nanoseconds since the epoch.
pub(super) fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// A time from now.
pub(super) fn from_now(after: Duration) -> Instant {
    Instant::now() + after.min(MAX_WAIT)
}
