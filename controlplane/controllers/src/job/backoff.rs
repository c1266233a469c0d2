//! When pods that failed are replaced: after a delay that grows with the failures of the job or, where failures are limited per
//! index, with those of the index. No clock, no tasks.

use super::indexes::Indexes;
use super::policy::{FailureAction, evaluate};
use super::view::{JobPod, Spec};
use coracle_informer::time;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The first delay after a failure, doubled with each further one, and the longest, in seconds.
const FIRST_DELAY: i64 = 10;
const LONGEST_DELAY: i64 = 600;

/// Whether a failed pod counts as a failure.
pub(super) fn counts(spec: &Spec, pod: &JobPod) -> bool {
    evaluate(spec.pod_failure_policy.as_ref(), pod) != FailureAction::Ignore
}

/// The last failed pod of each index that is neither settled nor active, where failures are limited per index. It keeps its
/// finalizer until its replacement is there, which takes over its count of failures.
pub(super) fn held<'a>(spec: &Spec, settled: &Indexes, pods: &'a [JobPod]) -> BTreeMap<i32, &'a JobPod> {
    let mut last: BTreeMap<i32, &JobPod> = BTreeMap::new();
    if !spec.indexed() || spec.backoff_limit_per_index.is_none() {
        return last;
    }
    let active: BTreeSet<i32> = pods.iter().filter(|p| p.pod.active()).filter_map(|p| p.index).collect();
    let order = |pod: &JobPod| (absolute(pod), pod.ended_at);
    for pod in pods.iter().filter(|p| p.tracked() && p.failed(spec)) {
        let Some(index) = pod.index.filter(|i| *i >= 0 && *i < spec.completions.unwrap_or(0)) else {
            continue;
        };
        if settled.contains(index) || active.contains(&index) {
            continue;
        }
        if last.get(&index).is_none_or(|other| order(other) <= order(pod)) {
            last.insert(index, pod);
        }
    }
    last
}

/// All failures of an index before a pod.
fn absolute(pod: &JobPod) -> i32 {
    pod.earlier_failures.saturating_add(pod.ignored_failures)
}

/// How often each index has failed: failures that count, and those that do not.
pub(super) fn failures_by_index(spec: &Spec, pods: &[JobPod]) -> BTreeMap<i32, (i32, i32)> {
    let mut map: BTreeMap<i32, (i32, i32)> = BTreeMap::new();
    for pod in pods.iter().filter(|p| p.failed(spec)) {
        let Some(index) = pod.index else { continue };
        let counted = counts(spec, pod);
        let failures = pod.earlier_failures.saturating_add(i32::from(counted));
        let ignored = pod.ignored_failures.saturating_add(i32::from(!counted));
        let most = map.entry(index).or_default();
        *most = (most.0.max(failures), most.1.max(ignored));
    }
    map
}

/// Until when an index gets no new pod after its last one failed.
pub(super) fn of_index(last: &JobPod) -> Option<Timestamp> {
    Some(delayed(last.ended_at?, usize::try_from(absolute(last)).unwrap_or(0)))
}

/// Until when the job gets no new pod, after failures in a row.
pub(super) fn of_job(spec: &Spec, pods: &[JobPod]) -> Option<Timestamp> {
    let last_success = pods.iter().filter(|p| p.succeeded()).filter_map(|p| p.ended_at).max();
    let failures = pods.iter().filter(|p| p.pod.ended() && p.failed(spec)).filter_map(|p| p.ended_at);
    let recent: Vec<Timestamp> = failures.filter(|at| last_success.is_none_or(|s| *at > s)).collect();
    Some(delayed(*recent.iter().max()?, recent.len() - 1))
}

/// The end of the delay after a failure that has so many others before it.
fn delayed(failed_at: Timestamp, earlier: usize) -> Timestamp {
    let doublings = u32::try_from(earlier).unwrap_or(u32::MAX).min(10);
    time::after(failed_at, (FIRST_DELAY << doublings).min(LONGEST_DELAY))
}
