//! Jobs.

use super::{creation, of_pods};
use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::batch::v1::{Job, JobCondition};

fn condition<'a>(job: View<'a, Job>, name: &str) -> Option<View<'a, JobCondition>> {
    job.status()
        .conditions()
        .items()
        .find(|condition| condition.type_() == name && condition.status() == "True")
}

/// Why a Job has not completed.
pub fn explain(world: &World, job: View<'_, Job>, trail: &[ObjectRef]) -> Vec<Finding> {
    if condition(job, "Complete").is_some() {
        return Vec::new();
    }
    if let Some(failed) = condition(job, "Failed").or_else(|| condition(job, "FailureTarget")) {
        return failed_job(world, job, failed, trail);
    }
    if job.spec().suspend().flag() {
        return vec![suspended(job)];
    }
    let mut findings = of_pods(world, job.metadata(), trail);
    if findings.is_empty() && job.status().active().or(0) == 0 {
        findings.extend(creation::explain(world, &ObjectRef::to(job), None));
    }
    findings
}

fn suspended(job: View<'_, Job>) -> Finding {
    let object = ObjectRef::to(job);
    let patch = r#"-p '{"spec":{"suspend":false}}'"#;
    let command = format!("kubectl patch {} {patch}", object.arguments());
    Finding::new(object, Trouble::Suspended, "the Job is suspended: it has no pods")
        .since(condition(job, "Suspended").map_or("", |condition| condition.last_transition_time().text()))
        .evidence("field spec.suspend", "true")
        .remedy(command)
}

/// A Job that has failed, and what its pods say.
fn failed_job(
    world: &World,
    job: View<'_, Job>,
    failed: View<'_, JobCondition>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let (trouble, cause, remedy) = match failed.reason().text() {
        "BackoffLimitExceeded" => {
            let limit = job.spec().backoff_limit().or(6);
            let cause = format!(
                "the Job was given up after {} failed pods (backoffLimit {limit})",
                job.status().failed().or(0)
            );
            (Trouble::JobBackoffLimit, cause, "correct what makes the pods fail, and create the Job again")
        }
        "DeadlineExceeded" => {
            let limit = job.spec().active_deadline_seconds().or(0);
            let cause = format!("the Job ran longer than its activeDeadlineSeconds of {limit} s");
            (
                Trouble::JobDeadline,
                cause,
                "raise spec.activeDeadlineSeconds, or make the work shorter; then create the Job again",
            )
        }
        reason => {
            let cause = format!("the Job has failed: {reason}: {}", failed.message().text());
            (Trouble::JobFailed, cause, "correct what the message names, and create the Job again")
        }
    };
    let mut of_pods = of_pods(world, job.metadata(), trail);
    let finding = Finding::new(ObjectRef::to(job), trouble, cause)
        .since(failed.last_transition_time().text())
        .evidence(format!("condition Failed: {}", failed.reason().text()), failed.message().text())
        .remedy(remedy);
    of_pods.truncate(1);
    of_pods.push(finding);
    of_pods
}
