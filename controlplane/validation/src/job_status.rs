//! Changes of the status of a Job. Most rules hold where a change touches what they are about: after a change of the spec, the
//! controller has not caught up with it yet.

use super::field_ref::{Field, walk_as};
use super::field_rules::NumberRules as _;
use super::jobs::count_indexes;
use crate::tree::same_at;
use coracle_fields::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use coracle_fields::{Schema, View};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// What the conditions of a Job say.
struct Ends {
    complete: bool,
    failed: bool,
    failure_target: bool,
    criteria_met: bool,
}

impl Ends {
    fn of(job: View<'_, Job>) -> Self {
        Self {
            complete: is_true(job, "Complete"),
            failed: is_true(job, "Failed"),
            failure_target: is_true(job, "FailureTarget"),
            criteria_met: is_true(job, "SuccessCriteriaMet"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }
}

/// A status before and after a change.
struct Change<'a> {
    job: View<'a, Job>,
    before: View<'a, Job>,
    now: Ends,
    was: Ends,
}

fn has_condition(job: View<'_, Job>, kind: &str, status: &str) -> bool {
    job.status()
        .conditions()
        .items()
        .any(|condition| condition.type_() == kind && condition.status() == status)
}

fn is_true(job: View<'_, Job>, kind: &str) -> bool {
    has_condition(job, kind, "True")
}

/// A change of a Job's status.
pub fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (job, before) = (Job::of(new), Job::of(old));
    let change = Change { job, before, now: Ends::of(job), was: Ends::of(before) };
    walk_as::<Job>(new, errors, |root| {
        let status = root.status();
        let counts =
            [status.active(), status.succeeded(), status.failed(), status.ready(), status.terminating()];
        for count in counts {
            count.non_negative();
        }
        uncounted(&status.uncounted_terminated_pods());
        ends(&status, &change);
        pods(&status, &change);
        indexes(&status, &change);
        ready(&status, &change);
        criteria(&status, &change);
        lasting(&status, &change);
    });
}

/// Reports an error of the conditions without their value.
fn conflict(status: &Field<'_, JobStatus>, why: &str) {
    let text = format!("Invalid value: {why}");
    status.report(FieldError::new("FieldValueInvalid", "status.conditions", text));
}

/// Every pod is once among those that are not counted yet.
fn uncounted(pods: &Field<'_, UncountedTerminatedPods>) {
    let mut seen = HashSet::new();
    for uid in pods.succeeded().items().chain(pods.failed().items()) {
        if uid.text().is_empty() {
            uid.invalid_as("", "must not be empty");
        } else if !seen.insert(uid.text()) {
            uid.duplicate();
        }
    }
}

/// Which conditions go together, and with which times.
fn ends(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let (now, was, before) = (&change.now, &change.was, change.before.status());
    let completed = now.complete != was.complete;
    let (start, completion) = (status.start_time(), status.completion_time());
    let times = completion.text() != before.completion_time().text();
    if (completed || now.failed != was.failed) && now.complete && now.failed {
        conflict(status, "cannot set Complete=True and Failed=true conditions");
    }
    if (completed || now.failure_target != was.failure_target) && now.complete && now.failure_target {
        conflict(status, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if completed || times {
        if completion.is_set() && !now.complete {
            completion.invalid("cannot set completionTime when there is no Complete=True condition");
        }
        if now.complete && !completion.is_set() {
            completion.required("completionTime is required for Complete jobs");
        }
    }
    if (times || start.text() != before.start_time().text())
        && start.is_set()
        && completion.is_set()
        && completion.text() < start.text()
    {
        completion.invalid("must be equal to or after `startTime`");
    }
    let failed_indexes = !status.failed_indexes().view().same_as(before.failed_indexes());
    if (now.failed != was.failed || failed_indexes) && now.failed && !now.failure_target {
        conflict(status, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (completed || now.criteria_met != was.criteria_met) && now.complete && !now.criteria_met {
        conflict(status, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

/// A Job that has ended has no pods left.
fn pods(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let before = change.before.status();
    let (finished, ended) = (change.now.finished(), change.now.finished() != change.was.finished());
    if !finished {
        return;
    }
    let active = status.active().or(0);
    if (ended || active != before.active().or(0)) && active > 0 {
        status.active().invalid("active>0 is invalid for finished job");
    }
    let pods = status.uncounted_terminated_pods();
    if (ended || !same_at(pods.view(), before.uncounted_terminated_pods()))
        && !(pods.succeeded().is_empty() && pods.failed().is_empty())
    {
        pods.invalid("must be empty for finished job");
    }
}

/// Indexes are those of the Job, and only some Jobs have them.
fn indexes(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let (spec, before) = (change.job.spec(), change.before.status());
    let (done, failed) = (status.completed_indexes(), status.failed_indexes());
    let is_done_new = done.text() != before.completed_indexes().text();
    let is_failed_new = !failed.view().same_as(before.failed_indexes());
    let per_index = spec.backoff_limit_per_index().is_set();
    if let Some(completions) = spec.completions().int() {
        if is_done_new && let Err(why) = count_indexes(done.text(), completions) {
            done.invalid(format!("error parsing completedIndexes: {why}"));
        }
        if is_failed_new
            && per_index
            && failed.is_set()
            && let Err(why) = count_indexes(failed.text(), completions)
        {
            failed.invalid(format!("error parsing failedIndexes: {why}"));
        }
    }
    if is_done_new && !done.text().is_empty() && spec.completion_mode() != "Indexed" {
        done.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if is_failed_new && failed.is_set() && !per_index {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
}

/// Pods are ready only while they are active, and end before their Job.
fn ready(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let before = change.before.status();
    let (finished, ended) = (change.now.finished(), change.now.finished() != change.was.finished());
    let (ready, terminating) = (status.ready(), status.terminating());
    if (ended || terminating.int() != before.terminating().int()) && finished && terminating.or(0) > 0 {
        terminating.invalid("terminating>0 is invalid for finished job");
    }
    let active = status.active().or(0);
    if (ready.int() != before.ready().int() || active != before.active().or(0)) && ready.or(0) > active {
        ready.invalid("cannot set more ready pods than active");
    }
}

/// What goes with the condition that enough pods have succeeded.
fn criteria(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let now = &change.now;
    if now.criteria_met && now.failed {
        conflict(status, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if now.criteria_met && now.failure_target {
        conflict(status, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if change.job.spec().success_policy().is_set() && !now.criteria_met && now.complete {
        conflict(
            status,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }
}

/// What stays as it is, or never gets less.
fn lasting(status: &Field<'_, JobStatus>, change: &Change<'_>) {
    let (now, was, before, spec) = (&change.now, &change.was, change.before.status(), change.job.spec());
    for (kind, was, now) in [
        ("Failed", was.failed, now.failed),
        ("Complete", was.complete, now.complete),
        ("FailureTarget", was.failure_target, now.failure_target),
    ] {
        if was && !now {
            conflict(status, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    let failed = status.failed();
    if failed.or(0) < before.failed().or(0) {
        failed.invalid_as(failed.or(0), "cannot decrease the failed counter");
    }
    // Indexed Jobs with as many completions as pods at a time may be scaled down.
    let is_elastic =
        spec.completion_mode() == "Indexed" && spec.completions().int() == spec.parallelism().int();
    let succeeded = status.succeeded();
    if !is_elastic && succeeded.or(0) < before.succeeded().or(0) {
        succeeded.invalid_as(succeeded.or(0), "cannot decrease the succeeded counter");
    }
    let (start, completion) = (status.start_time(), status.completion_time());
    let completed = before.completion_time();
    if completion.is_set() && completed.is_set() && completion.text() != completed.text() {
        completion.invalid("field is immutable");
    }
    let is_resumed = is_true(change.before, "Suspended") && has_condition(change.job, "Suspended", "False");
    let started = before.start_time();
    if started.is_set() && start.text() != started.text() && !spec.suspend().flag() && !is_resumed {
        start.invalid("field is immutable for unsuspended job once set");
    }
    if was.criteria_met && !now.criteria_met {
        conflict(status, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if was.complete && !was.criteria_met && now.criteria_met {
        conflict(status, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::changes;
    use super::*;
    use serde_json::json;

    fn job(spec: &Value, status: &Value, conditions: &[&str]) -> Value {
        let list: Vec<Value> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let mut job = json!({"spec": spec, "status": status});
        job["status"]["conditions"] = json!(list);
        job
    }

    #[test]
    fn ends_of_jobs() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let running = job(&json!({}), &json!({"startTime": early, "active": 1, "ready": 1}), &[]);
        let done = json!({"startTime": early, "completionTime": late, "succeeded": 1});
        let met = ["SuccessCriteriaMet", "Complete"];
        let why = |text: &str| format!("status.conditions: Invalid value: {text}");
        let cases: [(Value, &[&str], Vec<String>); 11] = [
            (done.clone(), &met, vec![]),
            (json!({"startTime": early, "failed": 1}), &["FailureTarget", "Failed"], vec![]),
            (
                done.clone(),
                &["Complete"],
                vec![why("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")],
            ),
            (
                json!({"startTime": early}),
                &["Failed"],
                vec![why("cannot set Failed=True condition without the FailureTarget=true condition")],
            ),
            (
                json!({"startTime": early}),
                &met,
                vec!["status.completionTime: Required value: completionTime is required for Complete jobs".into()],
            ),
            (
                json!({"startTime": early, "completionTime": late}),
                &[],
                vec![format!(
                    "status.completionTime: Invalid value: {late:?}: cannot set completionTime when there is no Complete=True condition"
                )],
            ),
            (
                json!({"startTime": early, "completionTime": "2025-01-01T00:00:00Z"}),
                &met,
                vec!["status.completionTime: Invalid value: \"2025-01-01T00:00:00Z\": must be equal to or after `startTime`".into()],
            ),
            (
                json!({"startTime": early, "active": 1, "ready": 2}),
                &[],
                vec!["status.ready: Invalid value: 2: cannot set more ready pods than active".into()],
            ),
            (
                json!({"startTime": early, "completionTime": late, "active": 1, "ready": 1, "terminating": 1}),
                &met,
                vec![
                    "status.active: Invalid value: 1: active>0 is invalid for finished job".into(),
                    "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job".into(),
                ],
            ),
            (
                json!({"startTime": late, "active": 1, "ready": 1}),
                &[],
                vec![format!(
                    "status.startTime: Invalid value: {late:?}: field is immutable for unsuspended job once set"
                )],
            ),
            (
                json!({"startTime": early, "active": 1, "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a", ""]}}),
                &[],
                vec![
                    "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"".into(),
                    "status.uncountedTerminatedPods.failed[1]: Invalid value: \"\": must not be empty".into(),
                ],
            ),
        ];
        for (status, conditions, wrong) in cases {
            let new = job(&json!({}), &status, conditions);
            assert_eq!(changes(update, &new, &running), wrong, "{status} {conditions:?}");
        }
        let old = job(&json!({}), &done, &met);
        assert_eq!(
            changes(update, &job(&json!({}), &done, &["Complete"]), &old),
            [
                why("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
                why("cannot disable the SuccessCriteriaMet=True condition"),
            ]
        );
    }

    #[test]
    fn indexes_and_counters() {
        let indexed = |completions: i64| json!({"completionMode": "Indexed", "completions": completions, "parallelism": 2});
        let before = json!({"succeeded": 2, "completedIndexes": "0,1"});
        for (spec, status, wrong) in [
            (indexed(3), json!({"succeeded": 3, "completedIndexes": "0-2"}), ""),
            (indexed(2), json!({"succeeded": 1, "completedIndexes": "0"}), ""),
            (
                indexed(3),
                json!({"succeeded": 1, "completedIndexes": "0,1"}),
                "cannot decrease the succeeded counter",
            ),
            (
                indexed(3),
                json!({"succeeded": 2, "completedIndexes": "0,3"}),
                "error parsing completedIndexes: too large index: \"3\"",
            ),
            (
                json!({}),
                json!({"succeeded": 2, "completedIndexes": "0"}),
                "cannot set non-empty completedIndexes when non-indexed completion mode",
            ),
            (
                indexed(3),
                json!({"succeeded": 2, "completedIndexes": "0,1", "failedIndexes": ""}),
                "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ),
        ] {
            let said = changes(update, &job(&spec, &status, &[]), &job(&spec, &before, &[]));
            let fits =
                if wrong.is_empty() { said.is_empty() } else { said.len() == 1 && said[0].ends_with(wrong) };
            assert!(fits, "{status} {said:?}");
        }
    }
}
