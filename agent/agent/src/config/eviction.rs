//! When pods are evicted because the node is short of something.

use std::collections::BTreeMap;
use std::time::Duration;

/// Memory that is free on the node.
pub const MEMORY: &str = "memory.available";
/// Memory that all pods together may still use.
pub const ALLOCATABLE_MEMORY: &str = "allocatableMemory.available";

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionPolicy {
    /// Thresholds below which pods are evicted at once.
    pub hard: BTreeMap<String, Threshold>,
    /// Thresholds below which pods are evicted after a while.
    pub soft: BTreeMap<String, SoftThreshold>,
    /// What must be free above a threshold that made pods go, until the shortage is over.
    pub reclaim: BTreeMap<String, Threshold>,
    /// Most seconds that a pod has to end after a soft threshold.
    pub max_pod_grace: i32,
}

/// What a signal is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit<'a> {
    /// Least amount that must be free.
    pub least: &'a Threshold,
    /// How long less must be free without a break; zero for a hard threshold.
    pub grace: Duration,
    /// What must be free above the threshold once it has made pods go.
    pub reclaim: Option<&'a Threshold>,
}

impl EvictionPolicy {
    /// What a signal is compared with. Hard thresholds of memory count for the memory of all pods together as well, so that pods
    /// are evicted before the kernel kills one of them.
    pub fn of(&self, signal: &str) -> impl Iterator<Item = Limit<'_>> {
        let of_machine = (signal == ALLOCATABLE_MEMORY).then(|| self.own(MEMORY));
        self.own(signal).chain(of_machine.into_iter().flatten().filter(|limit| limit.grace.is_zero()))
    }

    fn own(&self, signal: &str) -> impl Iterator<Item = Limit<'_>> + use<'_> {
        let reclaim = self.reclaim.get(signal);
        let limit = move |(least, grace)| Limit { least, grace, reclaim };
        let hard = self.hard.get(signal).map(|least| (least, Duration::ZERO));
        let soft = self.soft.get(signal).map(|soft| (&soft.least, soft.grace));
        hard.into_iter().chain(soft).map(limit).filter(|limit| !limit.least.is_off())
    }

    /// Signals with a threshold, hard or soft.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.hard.keys().chain(self.soft.keys()).map(String::as_str)
    }

    /// With the thresholds of another disk, `nodefs` or `imagefs`, for `containerfs`, as kubelets replace them whatever was given.
    pub fn with_containers_on(&self, disk: &str) -> EvictionPolicy {
        let mut policy = self.clone();
        for what in ["available", "inodesFree"] {
            let (from, to) = (format!("{disk}.{what}"), format!("containerfs.{what}"));
            copy(&mut policy.hard, &from, &to);
            copy(&mut policy.soft, &from, &to);
            copy(&mut policy.reclaim, &from, &to);
        }
        policy
    }

    /// Seconds that a pod has to end after a soft threshold; `asked` is its `terminationGracePeriodSeconds`.
    pub fn soft_grace(&self, asked: Option<i64>) -> i64 {
        let most = i64::from(self.max_pod_grace);
        asked.map_or(most, |asked| asked.min(most))
    }
}

fn copy<T: Clone>(all: &mut BTreeMap<String, T>, from: &str, to: &str) {
    match all.get(from).cloned() {
        Some(value) => drop(all.insert(to.to_owned(), value)),
        None => drop(all.remove(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_eviction_shortens_the_grace_of_the_pod_and_never_extends_it() {
        for (most, asked, want) in
            [(0, Some(30), 0), (60, Some(30), 30), (10, Some(30), 10), (10, None, 10), (-1, Some(45), -1)]
        {
            let policy = EvictionPolicy { max_pod_grace: most, ..EvictionPolicy::default() };
            assert_eq!(policy.soft_grace(asked), want, "{most} {asked:?}");
        }
    }

    fn amounts(all: &[(&str, i64)]) -> BTreeMap<String, Threshold> {
        all.iter().map(|(signal, amount)| ((*signal).to_owned(), Threshold::Amount(*amount))).collect()
    }

    #[test]
    fn hard_thresholds_of_memory_count_for_all_pods_together() {
        let soft = SoftThreshold { least: Threshold::Amount(300), grace: Duration::from_secs(1) };
        let policy = EvictionPolicy {
            hard: amounts(&[(MEMORY, 100), (ALLOCATABLE_MEMORY, 200)]),
            soft: BTreeMap::from([(MEMORY.to_owned(), soft)]),
            reclaim: amounts(&[(MEMORY, 10)]),
            ..EvictionPolicy::default()
        };
        let of = |signal: &str| -> Vec<_> {
            let amounts = |limit: Limit<'_>| (limit.least.of(0), limit.reclaim.map(|more| more.of(0)));
            policy.of(signal).map(amounts).collect()
        };
        assert_eq!(of(ALLOCATABLE_MEMORY), [(200, None), (100, Some(10))]);
        assert_eq!(of(MEMORY), [(100, Some(10)), (300, Some(10))]);
    }

    #[test]
    fn layers_have_the_thresholds_of_the_disk_that_they_are_on() {
        let policy = EvictionPolicy {
            hard: amounts(&[
                ("nodefs.available", 1),
                ("imagefs.available", 2),
                ("containerfs.inodesFree", 3),
            ]),
            reclaim: amounts(&[("imagefs.available", 4), ("containerfs.available", 5)]),
            ..EvictionPolicy::default()
        };
        for (disk, least, more) in [("nodefs", 1, None), ("imagefs", 2, Some(4))] {
            let policy = policy.with_containers_on(disk);
            let of = |signal: &str, all: &BTreeMap<String, Threshold>| all.get(signal).map(|at| at.of(0));
            assert_eq!(of("containerfs.available", &policy.hard), Some(least), "{disk}");
            assert_eq!(of("containerfs.available", &policy.reclaim), more, "{disk}");
            assert_eq!(of("containerfs.inodesFree", &policy.hard), None, "{disk}");
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
