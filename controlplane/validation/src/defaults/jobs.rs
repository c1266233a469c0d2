//! Defaults of Jobs and CronJobs.

use super::pods;
use crate::tree::{Grow, Tree, is_empty};
use serde_json::Value;

/// A Job.
pub fn job(object: &mut Value) {
    let labels = object.at("spec.template.metadata.labels").clone();
    if !is_empty(&labels) {
        object.section("metadata").default_empty("labels", labels);
    }
    let spec = object.section("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.put("completions", 1);
    }
    spec.default("parallelism", 1);
    let backoff = if spec.has("backoffLimitPerIndex") { i32::MAX } else { 6 };
    spec.default("backoffLimit", backoff);
    spec.default("completionMode", "NonIndexed");
    spec.default("suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.default("podReplacementPolicy", replacement);
    spec.default("manualSelector", false);
    job_template(spec);
}

/// What the Job inside a CronJob shares with a Job: its pods, and the patterns of its failure policy.
fn job_template(spec: &mut Value) {
    if let Some(policy) = spec.existing("podFailurePolicy") {
        policy.each("rules", |rule| {
            rule.each("onPodConditions", |pattern| pattern.default("status", "True"));
        });
    }
    pods::template(spec.section("template"));
}

/// A CronJob.
pub fn cron_job(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("concurrencyPolicy", "Allow");
    spec.default("suspend", false);
    spec.default("successfulJobsHistoryLimit", 3);
    spec.default("failedJobsHistoryLimit", 1);
    let template = spec.section("jobTemplate");
    template.section("metadata");
    job_template(template.section("spec"));
}
