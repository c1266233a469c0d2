//! Growing delays between retries, one per key: container restarts and image pulls.

use std::collections::HashMap;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
/// The first delay, if the longest is not less.
const FIRST: Duration = Duration::from_secs(10);
/// The longest delay, unless the node has another one for restarts of containers.
pub const LONGEST: Duration = Duration::from_secs(300);
/// What did not fail for so long is stable, whatever the longest delay is: as for kubelets.
const STABLE: i64 = 600 * SECOND;

/// Delays by key. Times are nanoseconds since the epoch, handed in by the caller.
#[derive(Clone, Debug)]
pub struct Backoffs {
    first: i64,
    longest: i64,
    entries: HashMap<String, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    delay: i64,
    updated: i64,
}

impl Default for Backoffs {
    /// From 10 s doubling to 5 min, reset after 10 minutes: as the kubelet.
    fn default() -> Self {
        Backoffs::up_to(LONGEST)
    }
}

impl Backoffs {
    /// Delays that double up to the longest one, which is also the first if that is shorter.
    pub fn up_to(longest: Duration) -> Self {
        let nanoseconds = |delay: Duration| i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        Backoffs {
            first: nanoseconds(FIRST.min(longest)),
            longest: nanoseconds(longest),
            entries: HashMap::new(),
        }
    }

    /// When a retry of something that failed at `failed_at` may happen; `None` means at once.
    pub fn until(&self, key: &str, failed_at: i64) -> Option<i64> {
        let entry = self.entries.get(key)?;
        if failed_at - entry.updated > STABLE {
            return None;
        }
        Some(failed_at + entry.delay)
    }

    /// The delay in force for a key, in nanoseconds.
    pub fn delay(&self, key: &str) -> i64 {
        self.entries.get(key).map(|entry| entry.delay).unwrap_or_default()
    }

    /// Records that a retry is made now of something that failed at `failed_at`: the next one waits longer.
    pub fn retried(&mut self, key: &str, failed_at: i64, now: i64) {
        let delay = match self.entries.get(key) {
            Some(entry) if failed_at - entry.updated <= STABLE => (entry.delay * 2).min(self.longest),
            _ => self.first,
        };
        self.entries.insert(key.to_owned(), Entry { delay, updated: now });
    }

    /// When the delay that began with the last retry is over.
    pub fn since_update(&self, key: &str) -> Option<i64> {
        self.entries.get(key).map(|entry| entry.updated + entry.delay)
    }

    /// Forgets every key that begins so.
    pub fn forget_prefix(&mut self, prefix: &str) {
        self.entries.retain(|key, _| !key.starts_with(prefix));
    }

    /// Forgets a key after success.
    pub fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_retry_is_free_then_doubles_to_the_cap_and_resets() {
        let mut backoffs = Backoffs::default();
        let mut now = 1000 * SECOND;
        assert_eq!(backoffs.until("c", now), None);
        for want in [10, 20, 40, 80, 160, 300, 300] {
            backoffs.retried("c", now, now);
            now += SECOND;
            assert_eq!(backoffs.until("c", now), Some(now + want * SECOND));
            now += want * SECOND;
        }
        let ran_long = now + 601 * SECOND;
        assert_eq!(backoffs.until("c", ran_long), None);
        backoffs.retried("c", ran_long, ran_long);
        assert_eq!(backoffs.delay("c"), 10 * SECOND);
    }

    #[test]
    fn the_longest_delay_limits_the_first_one_too() {
        for (longest, delays) in [(1, [1, 1, 1]), (15, [10, 15, 15]), (30, [10, 20, 30])] {
            let mut backoffs = Backoffs::up_to(Duration::from_secs(longest));
            let mut now = 1000 * SECOND;
            for delay in delays {
                // Failing again after minutes is no success, however short the delays are.
                now += 599 * SECOND;
                backoffs.retried("c", now, now);
                assert_eq!(backoffs.delay("c"), delay * SECOND, "{longest}");
            }
            assert_eq!(backoffs.until("c", now + 601 * SECOND), None, "{longest}");
        }
    }
}
