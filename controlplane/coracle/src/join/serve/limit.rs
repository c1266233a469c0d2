//! How often servers may try to join. Secrets of 256 bits are not guessed; the limit is for the work that attempts cost.

use coracle_proto::status::ApiError;
use parking_lot::Mutex;
use std::time::Instant;

/// Attempts per second.
const RATE: f64 = 5.0;
/// Attempts at once, when it was quiet before.
const BURST: f64 = 30.0;

/// A token bucket.
pub(super) struct RateLimit(Mutex<(f64, Instant)>);

impl Default for RateLimit {
    fn default() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }
}

impl RateLimit {
    /// Takes one attempt, or 429.
    pub(super) fn take(&self) -> Result<(), ApiError> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Result<(), ApiError> {
        let mut state = self.0.lock();
        let (left, since) = *state;
        let left = (left + now.saturating_duration_since(since).as_secs_f64() * RATE).min(BURST);
        if left < 1.0 {
            *state = (left, now.max(since));
            return Err(ApiError::too_many_requests("too many servers try to join", 1));
        }
        *state = (left - 1.0, now.max(since));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_taken_and_then_the_rate() {
        let (limit, begun) = (RateLimit::default(), Instant::now());
        let taken = |after: u64| {
            let at = begun + Duration::from_millis(after);
            std::iter::repeat_with(|| limit.take_at(at)).take(100).filter(Result::is_ok).count()
        };
        assert_eq!(taken(0), 30);
        assert_eq!(taken(0), 0);
        assert_eq!(taken(1000), 5);
        assert_eq!(taken(500), 0, "time does not go back");
        assert_eq!(taken(100_000), 30);
    }
}
