//! Growing delays between retries, one per key: container restarts and image pulls.

use std::collections::HashMap;

const SECOND: i64 = 1_000_000_000;

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
        Backoffs::new(10 * SECOND, 300 * SECOND)
    }
}

impl Backoffs {
    /// Delays between `first` and `longest` nanoseconds.
    pub fn new(first: i64, longest: i64) -> Self {
        Backoffs { first, longest, entries: HashMap::new() }
    }

    /// When a retry of something that failed at `failed_at` may happen; `None` means at once.
    pub fn until(&self, key: &str, failed_at: i64) -> Option<i64> {
        let entry = self.entries.get(key)?;
        if failed_at - entry.updated > 2 * self.longest {
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
            Some(entry) if failed_at - entry.updated <= 2 * self.longest => {
                (entry.delay * 2).min(self.longest)
            }
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
}
