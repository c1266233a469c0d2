//! The next step of a job. Counting survives any crash: the uid of a pod that ended is written down, then its finalizer
//! goes, then it is in the counts; whoever comes after a crash finds which of these was done.

use super::backoff;
use super::indexes::Indexes;
use super::policy::{FailureAction, evaluate, succeeded_early};
use super::view::{JobPod, Spec, Status};
use coracle_fields::Schema as _;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::pod::deletion_order;
use coracle_informer::time;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// How many pods one turn creates at most.
const BURST: usize = 500;

/// A pod to create: its index and how often that index failed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New {
    /// Index, in indexed jobs.
    pub index: Option<i32>,
    /// Failures of the index.
    pub failures: i32,
    /// Failures of the index that do not count.
    pub ignored: i32,
}

/// What to do now, in this order.
#[derive(Debug, Default)]
pub struct Plan {
    /// Pods to delete.
    pub delete: Vec<JobPod>,
    /// Pods to create.
    pub create: Vec<New>,
    /// The new status; to be written before finalizers go.
    pub status: Status,
    /// Pods whose finalizer may go once the status is written.
    pub release: Vec<JobPod>,
    /// Events: whether a warning, reason, message.
    pub events: Vec<(bool, &'static str, String)>,
    /// When time alone may change something.
    pub again: Option<Timestamp>,
}

/// Whether the job has ended, well or badly.
pub fn finished(status: &Status) -> bool {
    conditions::is_true(&status.conditions, "Complete") || conditions::is_true(&status.conditions, "Failed")
}

/// Everything the decisions are made from.
struct Count<'a> {
    spec: &'a Spec,
    active: Vec<&'a JobPod>,
    terminating: usize,
    succeeded: i32,
    failed: i32,
    done: Indexes,
    failed_indexes: Indexes,
    /// The last failed pod of each index that waits for its replacement.
    held: BTreeMap<i32, &'a JobPod>,
}

/// Plans the next step; `pods` are the job's own.
pub fn plan(name: &str, spec: &Spec, old: &Status, pods: &[JobPod], now: Timestamp) -> Plan {
    let mut plan = Plan { status: old.clone(), ..Plan::default() };
    count_settled(&mut plan.status, pods);
    let completions = spec.completions.unwrap_or(0);
    let mut done = Indexes::parse(&plan.status.completed_indexes, completions);
    let mut failed_indexes = Indexes::parse(plan.status.failed_indexes.as_deref().unwrap_or(""), completions);
    if spec.indexed() {
        // A pod that counted as failed when it was deleted may still end well.
        let failed_before = |pod: &&JobPod| {
            let uncounted = &plan.status.uncounted_terminated_pods;
            (pod.pod.terminating() && !pod.tracked()) || uncounted.failed.iter().any(|u| u == pod.pod.uid())
        };
        let ended_well = pods.iter().filter(|p| p.succeeded() && !failed_before(p)).filter_map(|p| p.index);
        done.extend(ended_well.filter(|i| *i < completions && !failed_indexes.contains(*i)));
        if spec.backoff_limit_per_index.is_some() {
            failed_indexes.extend(exhausted(spec, pods).into_iter().filter(|i| !done.contains(*i)));
            plan.status.failed_indexes = Some(failed_indexes.to_string());
        }
        plan.status.completed_indexes = done.to_string();
    }
    let held = backoff::held(spec, &done.union(&failed_indexes), pods);
    let fail = note_ended(spec, &mut plan, pods, &held);
    let uncounted = &plan.status.uncounted_terminated_pods;
    let len = |list: &Vec<String>| i32::try_from(list.len()).unwrap_or(i32::MAX);
    let count = Count {
        spec,
        active: pods.iter().filter(|p| p.pod.active()).collect(),
        terminating: pods.iter().filter(|p| p.pod.terminating() && !p.pod.ended()).count(),
        succeeded: if spec.indexed() {
            i32::try_from(done.len()).unwrap_or(i32::MAX)
        } else {
            plan.status.succeeded.saturating_add(len(&uncounted.succeeded))
        },
        failed: plan.status.failed.saturating_add(len(&uncounted.failed)).saturating_add(
            i32::try_from(held.values().filter(|p| backoff::counts(spec, p)).count()).unwrap_or(i32::MAX),
        ),
        done,
        failed_indexes,
        held,
    };
    if plan.status.start_time.is_none() && !spec.suspend {
        plan.status.start_time = Some(time::seconds(now));
    }
    let interim = verdict(&count, &mut plan, pods, fail, now);
    let mut active = count.active.len();
    if let Some(condition) = interim {
        conditions::put(&mut plan.status.conditions, condition);
        // No index is replaced any more.
        plan.release.clear();
        note_ended(spec, &mut plan, pods, &BTreeMap::new());
        plan.delete = count.active.iter().map(|p| (*p).clone()).collect();
        active = 0;
    } else {
        active = manage(&count, &mut plan, pods, active, now);
        if reached(&count, active) {
            let message = "Reached expected number of succeeded pods";
            let met = Condition::new("SuccessCriteriaMet", true, "CompletionsReached", message, now);
            conditions::put(&mut plan.status.conditions, met);
        } else {
            suspension(spec, &mut plan, now);
        }
    }
    let as_i32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    plan.status.active = as_i32(active);
    // Pods that are being deleted may be ready, but are not active.
    let ready = count.active.iter().filter(|p| p.pod.ready).count();
    plan.status.ready = Some(as_i32(ready.min(active)));
    plan.status.terminating = Some(as_i32(count.terminating + plan.delete.len()));
    if spec.indexed() {
        plan.status.succeeded = count.succeeded;
    }
    end(name, &mut plan, now);
    plan
}

/// Moves pods that were written down and are without finalizer, or gone, into the counts.
fn count_settled(status: &mut Status, pods: &[JobPod]) {
    let pending: BTreeSet<&str> = pods.iter().filter(|p| p.tracked()).map(|p| p.pod.uid()).collect();
    let uncounted = &mut status.uncounted_terminated_pods;
    // Earlier versions wrote down a pod that was deleted and ended well as both: the status could not be written any more.
    uncounted.succeeded.retain(|uid| !uncounted.failed.contains(uid));
    let settle = |list: &mut Vec<String>| {
        let before = list.len();
        list.retain(|uid| pending.contains(uid.as_str()));
        i32::try_from(before - list.len()).unwrap_or(0)
    };
    status.succeeded = status.succeeded.saturating_add(settle(&mut uncounted.succeeded));
    status.failed = status.failed.saturating_add(settle(&mut uncounted.failed));
}

/// Writes down pods that ended since and are not held for their replacement; returns why the job fails, if a rule says so.
fn note_ended(
    spec: &Spec,
    plan: &mut Plan,
    pods: &[JobPod],
    held: &BTreeMap<i32, &JobPod>,
) -> Option<String> {
    let mut why = None;
    for pod in pods.iter().filter(|p| p.tracked()) {
        let uid = pod.pod.uid().to_owned();
        let uncounted = &mut plan.status.uncounted_terminated_pods;
        if pod.succeeded() {
            // One that was deleted counts as failed, also if it ends well later.
            if !uncounted.succeeded.contains(&uid) && !uncounted.failed.contains(&uid) {
                uncounted.succeeded.push(uid);
            }
        } else if pod.failed(spec) {
            let verdict = evaluate(spec.pod_failure_policy.as_ref(), pod);
            if let FailureAction::FailJob(reason) = &verdict {
                why.get_or_insert(reason.clone());
            }
            if pod.index.and_then(|i| held.get(&i)).is_some_and(|h| h.pod.uid() == pod.pod.uid()) {
                continue;
            }
            if verdict != FailureAction::Ignore && !uncounted.failed.contains(&uid) {
                uncounted.failed.push(uid);
            }
        } else {
            continue;
        }
        plan.release.push(pod.clone());
    }
    why
}

/// Indexes that failed too often, or by a rule.
fn exhausted(spec: &Spec, pods: &[JobPod]) -> BTreeSet<i32> {
    let limit = spec.backoff_limit_per_index.unwrap_or(i32::MAX);
    let gone = |pod: &&JobPod| {
        if !pod.failed(spec) {
            return false;
        }
        match evaluate(spec.pod_failure_policy.as_ref(), pod) {
            FailureAction::FailIndex => true,
            FailureAction::Ignore => false,
            _ => pod.earlier_failures >= limit,
        }
    };
    pods.iter().filter(gone).filter_map(|p| p.index).collect()
}

/// The condition that announces the end, if it is decided.
fn verdict(
    count: &Count<'_>,
    plan: &mut Plan,
    pods: &[JobPod],
    fail: Option<String>,
    now: Timestamp,
) -> Option<Condition> {
    let spec = count.spec;
    for kind in ["SuccessCriteriaMet", "FailureTarget"] {
        if let Some(decided) = conditions::find(&plan.status.conditions, kind).filter(|c| c.is_true()) {
            return Some(decided.clone());
        }
    }
    let failure = |reason, message: &str| Some(Condition::new("FailureTarget", true, reason, message, now));
    if let Some(why) = fail {
        return failure("PodFailurePolicy", &why);
    }
    if count.failed > spec.backoff_limit || restarts_exceed(spec, pods) {
        return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if let (Some(limit), false) = (spec.active_deadline_seconds, spec.suspend)
        && let Some(start) = time::parse(plan.status.start_time.as_deref())
    {
        let due = time::after(start, limit);
        if due <= now {
            return failure("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        plan.again = Some(due);
    }
    if !spec.indexed() {
        return None;
    }
    let failed = count.failed_indexes.len();
    let completions = spec.completions.unwrap_or(0);
    if spec.max_failed_indexes.is_some_and(|max| failed > usize::try_from(max).unwrap_or(0)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return failure("MaxFailedIndexesExceeded", message);
    }
    if failed > 0 && failed + count.done.len() >= usize::try_from(completions).unwrap_or(0) {
        return failure("FailedIndexes", "Job has failed indexes");
    }
    let early = succeeded_early(spec.success_policy.as_ref(), completions, &count.done)?;
    Some(Condition::new("SuccessCriteriaMet", true, "SuccessPolicy", early, now))
}

/// Whether containers that restart in place have used up the limit.
fn restarts_exceed(spec: &Spec, pods: &[JobPod]) -> bool {
    if PodTemplateSpec::of(&spec.template).spec().restart_policy() != "OnFailure" {
        return false;
    }
    let restarts = pods.iter().filter(|p| p.pod.active()).map(|p| p.restarts).fold(0, i32::saturating_add);
    if spec.backoff_limit == 0 { restarts > 0 } else { restarts >= spec.backoff_limit }
}

fn reached(count: &Count<'_>, active: usize) -> bool {
    let enough = match count.spec.completions {
        Some(completions) => count.succeeded >= completions,
        None => count.succeeded > 0,
    };
    enough && active == 0
}

/// Creates or deletes pods; returns how many are active then.
fn manage(count: &Count<'_>, plan: &mut Plan, pods: &[JobPod], active: usize, now: Timestamp) -> usize {
    let spec = count.spec;
    if spec.suspend {
        plan.delete = count.active.iter().map(|p| (*p).clone()).collect();
        return 0;
    }
    let parallelism = usize::try_from(spec.parallelism).unwrap_or(0);
    let wanted = match spec.completions {
        None if count.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => {
            let settled =
                count.succeeded.saturating_add(i32::try_from(count.failed_indexes.len()).unwrap_or(0));
            parallelism.min(usize::try_from(completions.saturating_sub(settled)).unwrap_or(0))
        }
    };
    let mut keep: Vec<&JobPod> = count.active.clone();
    if spec.indexed() {
        // An index belongs to one pod, the oldest; and not to any once it is settled.
        keep.sort_by(|a, b| (a.pod.created, a.pod.name()).cmp(&(b.pod.created, b.pod.name())));
        let mut taken = BTreeSet::new();
        keep.retain(|p| p.index.is_some_and(|i| !count.failed_indexes.contains(i) && taken.insert(i)));
        let kept: BTreeSet<&str> = keep.iter().map(|p| p.pod.uid()).collect();
        plan.delete.extend(count.active.iter().filter(|p| !kept.contains(p.pod.uid())).map(|p| (*p).clone()));
    }
    if keep.len() > wanted {
        keep.sort_by(|a, b| deletion_order((&a.pod, 0), (&b.pod, 0), now));
        plan.delete.extend(keep.drain(..keep.len() - wanted).cloned());
        return keep.len();
    }
    let ending = if spec.replaces_failed_only() { count.terminating } else { 0 };
    let room = wanted.saturating_sub(keep.len() + ending).min(BURST);
    if room == 0 {
        return keep.len();
    }
    if spec.backoff_limit_per_index.is_none()
        && let Some(at) = backoff::of_job(spec, pods).filter(|at| *at > now)
    {
        plan.again = Some(plan.again.map_or(at, |a| a.min(at)));
        return keep.len();
    }
    if spec.indexed() {
        let mut taken = count.done.union(&count.failed_indexes);
        taken.extend(keep.iter().filter_map(|p| p.index));
        if spec.replaces_failed_only() {
            taken.extend(
                pods.iter().filter(|p| p.pod.terminating() && !p.pod.ended()).filter_map(|p| p.index),
            );
        }
        let failures = backoff::failures_by_index(spec, pods);
        let free = taken.missing(spec.completions.unwrap_or(0));
        for index in free.take(room) {
            let due = count.held.get(&index).and_then(|pod| backoff::of_index(pod));
            if let Some(at) = due.filter(|at| spec.backoff_limit_per_index.is_some() && *at > now) {
                plan.again = Some(plan.again.map_or(at, |a| a.min(at)));
                continue;
            }
            let (failures, ignored) = failures.get(&index).copied().unwrap_or_default();
            plan.create.push(New { index: Some(index), failures, ignored });
        }
    } else {
        plan.create = vec![New { index: None, failures: 0, ignored: 0 }; room];
    }
    keep.len() + plan.create.len()
}

/// Says when the job is suspended or goes on.
fn suspension(spec: &Spec, plan: &mut Plan, now: Timestamp) {
    let suspended = conditions::is_true(&plan.status.conditions, "Suspended");
    let known = conditions::find(&plan.status.conditions, "Suspended").is_some();
    if spec.suspend && !suspended {
        let condition = Condition::new("Suspended", true, "JobSuspended", "Job suspended", now);
        conditions::put(&mut plan.status.conditions, condition);
        plan.events.push((false, "Suspended", "Job suspended".into()));
        plan.status.start_time = None;
    } else if !spec.suspend && known && suspended {
        let condition = Condition::new("Suspended", false, "JobResumed", "Job resumed", now);
        conditions::put(&mut plan.status.conditions, condition);
        plan.events.push((false, "Resumed", "Job resumed".into()));
        plan.status.start_time = Some(time::seconds(now));
    }
}

/// Once nothing is left of the job's pods, what was announced holds.
fn end(name: &str, plan: &mut Plan, now: Timestamp) {
    let status = &mut plan.status;
    let uncounted = &status.uncounted_terminated_pods;
    let settled = status.active == 0
        && status.terminating.unwrap_or(0) == 0
        && uncounted.succeeded.is_empty()
        && uncounted.failed.is_empty()
        && plan.release.is_empty();
    if !settled {
        return;
    }
    if let Some(met) =
        conditions::find(&status.conditions, "SuccessCriteriaMet").filter(|c| c.is_true()).cloned()
    {
        let complete = Condition::new("Complete", true, &met.reason, met.message, now);
        conditions::put(&mut status.conditions, complete);
        status.completion_time = Some(time::seconds(now));
        status.ready = Some(0);
        plan.events.push((false, "Completed", "Job completed".into()));
    } else if let Some(target) =
        conditions::find(&status.conditions, "FailureTarget").filter(|c| c.is_true()).cloned()
    {
        let failed = Condition::new("Failed", true, &target.reason, target.message.clone(), now);
        conditions::put(&mut status.conditions, failed);
        status.ready = Some(0);
        let reason = match target.reason.as_str() {
            "DeadlineExceeded" => "DeadlineExceeded",
            "PodFailurePolicy" => "PodFailurePolicy",
            "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
            "FailedIndexes" => "FailedIndexes",
            _ => "BackoffLimitExceeded",
        };
        tracing::debug!(job = name, reason, "failed");
        plan.events.push((true, reason, target.message));
    }
}
