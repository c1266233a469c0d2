//! A limit on requests per second: a bucket of tokens. Pure: the clock is passed in.

use parking_lot::Mutex;
use std::time::Instant;

/// Tokens, and when they were counted.
#[derive(Debug)]
pub struct RateLimit {
    per_second: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl RateLimit {
    /// So many requests per second, and so many at once.
    pub fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(per_second), burst, state: Mutex::new((burst, now)) }
    }

    /// Whether a request is allowed now.
    pub fn allows(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let passed = now.saturating_duration_since(state.1).as_secs_f64();
        let tokens = (state.0 + passed * self.per_second).min(self.burst);
        let allowed = tokens >= 1.0;
        *state = (if allowed { tokens - 1.0 } else { tokens }, now);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_then_so_many_per_second() {
        let begin = Instant::now();
        let limit = RateLimit::new(100, 10, begin);
        let allowed = |at: Instant, tries: usize| (0..tries).filter(|_| limit.allows(at)).count();
        assert_eq!(allowed(begin, 50), 10);
        assert_eq!(allowed(begin + Duration::from_millis(50), 50), 5);
        assert_eq!(allowed(begin + Duration::from_secs(60), 50), 10, "tokens do not pile up");
    }
}
