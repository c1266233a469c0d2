//! When unused images are removed.

use std::time::Duration;

/// When images are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Use of the disk in percent from which unused images are removed; 100 is never.
    pub high_percent: u8,
    /// Use of the disk in percent down to which they are removed.
    pub low_percent: u8,
    /// An image that was on the node for less time is kept.
    pub min_age: Duration,
    /// An image that nothing has used for longer is removed, however full the disk is; zero is never.
    pub max_age: Duration,
}

impl Default for GcPolicy {
    fn default() -> Self {
        let min_age = Duration::from_secs(120);
        GcPolicy { high_percent: 85, low_percent: 80, min_age, max_age: Duration::ZERO }
    }
}

impl GcPolicy {
    /// Whether there is nothing that it would ever remove.
    pub fn is_off(&self) -> bool {
        self.high_percent >= 100 && self.max_age.is_zero()
    }
}
