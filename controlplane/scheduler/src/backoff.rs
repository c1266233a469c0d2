//! How long pods wait after attempts that failed.

/// Milliseconds since some start.
pub type Millis = u64;

/// How long a pod waits after an attempt that failed; doubles with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt.
    pub first: Millis,
    /// At most.
    pub longest: Millis,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: 1_000, longest: 10_000 }
    }
}

impl Backoff {
    /// The time after so many attempts.
    pub fn after(self, attempts: u32) -> Millis {
        self.first.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(self.longest)
    }
}
