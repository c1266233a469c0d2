//! When pods are evicted because the node is short of something.

use std::collections::BTreeMap;
use std::time::Duration;

/// Grace period of pods that do not say one.
const POD_GRACE: i64 = 30;

/// Least amount of a resource that must be free: bytes or counts, or a part of the whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Threshold {
    /// An amount.
    Amount(i64),
    /// Percent of the whole.
    Percent(f64),
}

impl Threshold {
    /// As an amount of the whole.
    pub fn of(&self, total: i64) -> i64 {
        match self {
            Threshold::Amount(amount) => *amount,
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            Threshold::Percent(percent) => (total as f64 * percent / 100.0) as i64,
        }
    }

    /// 0% and 100% switch a threshold off, as for kubelets.
    pub fn is_off(&self) -> bool {
        matches!(self, Threshold::Percent(percent) if *percent <= 0.0 || *percent >= 100.0)
    }
}

/// A threshold that makes pods go only after it was crossed for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftThreshold {
    /// Least amount that must be free.
    pub least: Threshold,
    /// How long less must be free without a break.
    pub grace: Duration,
}

/// When pods are evicted. The keys are eviction signals.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionPolicy {
    /// Thresholds below which pods are evicted at once.
    pub hard: BTreeMap<String, Threshold>,
    /// Thresholds below which pods are evicted after a while.
    pub soft: BTreeMap<String, SoftThreshold>,
    /// What must be free above a threshold that made pods go, until the shortage is over.
    pub reclaim: BTreeMap<String, Threshold>,
    /// Most seconds that a pod has to end after a soft threshold; `None` for as many as it asks for.
    pub max_pod_grace: Option<u32>,
}

impl Default for EvictionPolicy {
    fn default() -> Self {
        EvictionPolicy {
            hard: BTreeMap::new(),
            soft: BTreeMap::new(),
            reclaim: BTreeMap::new(),
            max_pod_grace: Some(0),
        }
    }
}

impl EvictionPolicy {
    /// Thresholds of a signal, with the time for which they must be crossed.
    pub fn of(&self, signal: &str) -> impl Iterator<Item = (&Threshold, Duration)> {
        let hard = self.hard.get(signal).map(|least| (least, Duration::ZERO));
        let soft = self.soft.get(signal).map(|soft| (&soft.least, soft.grace));
        hard.into_iter().chain(soft).filter(|(least, _)| !least.is_off())
    }

    /// Seconds that a pod has to end after a soft threshold; `asked` is its `terminationGracePeriodSeconds`.
    pub fn soft_grace(&self, asked: Option<i64>) -> i64 {
        let most = self.max_pod_grace.map(i64::from);
        asked.into_iter().chain(most).min().unwrap_or(POD_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_eviction_shortens_the_grace_of_the_pod_and_never_extends_it() {
        for (most, asked, want) in [
            (Some(0), Some(30), 0),
            (Some(60), Some(30), 30),
            (Some(10), Some(30), 10),
            (Some(10), None, 10),
            (None, Some(45), 45),
            (None, None, 30),
        ] {
            let policy = EvictionPolicy { max_pod_grace: most, ..EvictionPolicy::default() };
            assert_eq!(policy.soft_grace(asked), want, "{most:?} {asked:?}");
        }
    }

    #[test]
    fn thresholds_of_no_or_all_percent_are_off() {
        for (threshold, is_off) in [
            (Threshold::Percent(0.0), true),
            (Threshold::Percent(100.0), true),
            (Threshold::Percent(0.5), false),
            (Threshold::Percent(99.0), false),
            (Threshold::Amount(0), false),
        ] {
            assert_eq!(threshold.is_off(), is_off, "{threshold:?}");
        }
    }
}
