//! Columns of Jobs and CronJobs.

use super::{Column, age, duration_between, format, name, since, text, text_or, wide};
use coracle_fields::View;
use coracle_fields::batch::v1::{CronJob, Job};
use serde_json::json;

/// Jobs.
pub fn job() -> Vec<Column> {
    vec![
        name(),
        text::<Job>("Status", |job| json!(state(job))),
        text::<Job>("Completions", |job| json!(completions(job))),
        text::<Job>("Duration", |job| {
            let status = job.status();
            let duration = duration_between(status.start_time().text(), status.completion_time().text());
            json!(duration.unwrap_or_default())
        }),
        age(),
        wide::<Job>("Containers", |job| json!(format::container_names(job.spec().template()))),
        wide::<Job>("Images", |job| json!(format::container_images(job.spec().template()))),
        wide::<Job>("Selector", |job| json!(format::selector(job.spec().selector()))),
    ]
}

fn state(job: View<'_, Job>) -> &'static str {
    let is = |kind: &str| format::is_true(job.status().conditions(), kind);
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if job.metadata().deletion_timestamp().is_set() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: View<'_, Job>) -> String {
    let done = job.status().succeeded().or(0);
    match (job.spec().completions().int(), job.spec().parallelism().or(0)) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

/// CronJobs.
pub fn cron_job() -> Vec<Column> {
    vec![
        name(),
        text::<CronJob>("Schedule", |object| object.spec().schedule().to_value()),
        text::<CronJob>("Timezone", |object| text_or(object.spec().time_zone().text(), "<none>")),
        super::column::<CronJob>("Suspend", "boolean", |object| match object.spec().suspend().get() {
            Some(true) => json!("True"),
            Some(false) => json!("False"),
            None => json!("<unset>"),
        }),
        super::number::<CronJob>("Active", |object| json!(object.status().active().len())),
        text::<CronJob>("Last Schedule", |object| {
            let last = object.status().last_schedule_time();
            if last.is_set() { json!(since(last.text())) } else { json!("<none>") }
        }),
        age(),
        wide::<CronJob>("Containers", |object| {
            json!(format::container_names(object.spec().job_template().spec().template()))
        }),
        wide::<CronJob>("Images", |object| {
            json!(format::container_images(object.spec().job_template().spec().template()))
        }),
        wide::<CronJob>("Selector", |object| {
            json!(format::selector(object.spec().job_template().spec().selector()))
        }),
    ]
}
