//! Columns of Jobs and CronJobs.

use super::{age, duration_between, format, name, since, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// Jobs.
pub fn job() -> Vec<Column> {
    vec![
        name(),
        text("Status", |job| json!(state(job))),
        text("Completions", |job| json!(completions(job))),
        text("Duration", |job| {
            json!(
                duration_between(job.at("status.startTime"), job.at("status.completionTime"))
                    .unwrap_or_default()
            )
        }),
        age(),
        wide("Containers", |job| json!(format::container_names(job.at("spec.template")))),
        wide("Images", |job| json!(format::container_images(job.at("spec.template")))),
        wide("Selector", |job| json!(format::selector(job.at("spec.selector")))),
    ]
}

fn state(job: &Value) -> &'static str {
    let is = |kind: &str| format::is_true(job, kind);
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if job.has("metadata.deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let done = job.int("status.succeeded").unwrap_or_default();
    match (job.int("spec.completions"), job.int("spec.parallelism").unwrap_or_default()) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

/// CronJobs.
pub fn cron_job() -> Vec<Column> {
    vec![
        name(),
        text("Schedule", |object| object.at("spec.schedule").clone()),
        text("Timezone", |object| text_or(object, "spec.timeZone", "<none>")),
        super::column("Suspend", "boolean", |object| match object.at("spec.suspend").as_bool() {
            Some(true) => json!("True"),
            Some(false) => json!("False"),
            None => json!("<unset>"),
        }),
        super::number("Active", |object| json!(object.items("status.active").len())),
        text("Last Schedule", |object| {
            let last = object.at("status.lastScheduleTime");
            if last.is_null() { json!("<none>") } else { json!(since(last)) }
        }),
        age(),
        wide("Containers", |object| {
            json!(format::container_names(object.at("spec.jobTemplate.spec.template")))
        }),
        wide("Images", |object| json!(format::container_images(object.at("spec.jobTemplate.spec.template")))),
        wide("Selector", |object| json!(format::selector(object.at("spec.jobTemplate.spec.selector")))),
    ]
}
