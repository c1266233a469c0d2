//! Defaults of Jobs and CronJobs.

use super::pods;
use crate::tree::is_empty;
use coracle_fields::batch::v1::{CronJob, Job, JobSpec};
use coracle_fields::{Edit, Schema};
use serde_json::Value;

/// A Job.
pub fn job(object: &mut Value) {
    let mut job = Job::edit(object);
    let labels = job.view().spec().template().metadata().labels().to_value();
    if !is_empty(&labels) && job.view().metadata().labels().entries().next().is_none() {
        job.metadata().labels().put(labels);
    }
    let mut spec = job.spec().section();
    if !spec.view().completions().is_set() && !spec.view().parallelism().is_set() {
        spec.completions().set(1);
    }
    spec.parallelism().default(1);
    let backoff = if spec.view().backoff_limit_per_index().is_set() { i32::MAX } else { 6 };
    spec.backoff_limit().default(backoff);
    spec.completion_mode().default("NonIndexed");
    spec.suspend().default(false);
    let failing = spec.view().pod_failure_policy().is_set();
    spec.pod_replacement_policy().default(if failing { "Failed" } else { "TerminatingOrFailed" });
    spec.manual_selector().default(false);
    job_template(spec);
}

/// What the Job inside a CronJob shares with a Job: its pods, and the patterns of its failure policy.
fn job_template(mut spec: Edit<'_, JobSpec>) {
    spec.pod_failure_policy().rules().each_object(|mut rule| {
        rule.on_pod_conditions().each_object(|mut pattern| pattern.status().default("True"));
    });
    pods::template(spec.template().section());
}

/// A CronJob.
pub fn cron_job(object: &mut Value) {
    let mut cron = CronJob::edit(object);
    let mut spec = cron.spec().section();
    spec.concurrency_policy().default("Allow");
    spec.suspend().default(false);
    spec.successful_jobs_history_limit().default(3);
    spec.failed_jobs_history_limit().default(1);
    let mut template = spec.job_template().section();
    template.metadata().section();
    job_template(template.spec().section());
}
