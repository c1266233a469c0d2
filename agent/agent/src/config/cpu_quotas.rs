//! Quotas of CPU time, with which cgroups enforce limits of cpus.

use std::time::Duration;

/// The kernel takes no smaller quota, in microseconds.
const MIN: i64 = 1000;
/// The kernel takes no larger quota, in microseconds.
const MAX: i64 = (1 << 44) - 1;
/// Removes the quota of a cgroup.
const REMOVED: i64 = -1;

/// How limits of cpus are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuotas {
    /// The time in which a quota can be used.
    period: Duration,
    is_enforced: bool,
}

impl Default for CpuQuotas {
    /// As in Kubernetes: quotas of periods of 100 ms.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), true)
    }
}

impl CpuQuotas {
    /// Quotas of this period, or none if they are not enforced.
    pub fn new(period: Duration, is_enforced: bool) -> Self {
        Self { period, is_enforced }
    }

    /// None for what has cpus of its own: these are its limit.
    #[must_use]
    pub fn unless(self, has_exclusive_cpus: bool) -> Self {
        Self { is_enforced: self.is_enforced && !has_exclusive_cpus, ..self }
    }

    /// The time in which a quota can be used.
    pub fn period(self) -> Duration {
        self.period
    }

    /// The period in microseconds.
    pub fn period_micros(self) -> i64 {
        i64::try_from(self.period.as_micros()).unwrap_or(MAX)
    }

    /// Whether limits are enforced.
    pub fn is_enforced(self) -> bool {
        self.is_enforced
    }

    /// The quota for thousandths of a cpu, in microseconds per period. 0 if there is no limit; negative if limits are not enforced,
    /// which removes a quota that was set before.
    pub fn quota(self, milli: i64) -> i64 {
        match milli {
            _ if !self.is_enforced => REMOVED,
            0 => 0,
            milli => (milli.saturating_mul(self.period_micros()) / 1000).clamp(MIN, MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_parts_of_the_period() {
        let of = |millis: u64| CpuQuotas::new(Duration::from_millis(millis), true);
        for (quotas, milli, period, quota) in [
            (CpuQuotas::default(), 0, 100_000, 0),
            (CpuQuotas::default(), 1500, 100_000, 150_000),
            (CpuQuotas::default(), 1, 100_000, 1000),
            (CpuQuotas::default(), i64::MAX, 100_000, i64::MAX / 1000),
            (of(1000), 1500, 1_000_000, 1_500_000),
            (of(5), 500, 5000, 2500),
            (CpuQuotas::new(Duration::from_micros(1500), true), 2000, 1500, 3000),
            // Less than a millisecond is no quota that the kernel takes.
            (of(5), 100, 5000, 1000),
            (of(1), 100, 1000, 1000),
            (CpuQuotas::new(Duration::from_millis(20), false), 500, 20_000, -1),
            (CpuQuotas::new(Duration::from_millis(20), false), 0, 20_000, -1),
            (of(20).unless(false), 1000, 20_000, 20_000),
            (of(20).unless(true), 1000, 20_000, -1),
        ] {
            assert_eq!(
                (quotas.period_micros(), quotas.quota(milli)),
                (period, quota.min(MAX)),
                "{quotas:?} {milli}"
            );
        }
    }
}
