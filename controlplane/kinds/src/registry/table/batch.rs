//! Jobs.

use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, fields, strategy};
use coracle_validation::defaults;
use coracle_validation::job_status;
use coracle_validation::jobs;
use coracle_validation::workloads;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("batch", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CronJob", "cronjobs")
            .short(&["cj"])
            .category("all")
            .status()
            .generation()
            .columns(columns::cron_job())
            .defaults(defaults::jobs::cron_job)
            .prepare(strategy::workloads::create_cron_job, keep_status)
            .validate(jobs::cron_job, jobs::cron_job_update)
            .validate_create(jobs::new_cron_job)
            .warnings(strategy::warnings::cron_job),
        row("Job", "jobs")
            .category("all")
            .status()
            .generation()
            .fields(fields::job())
            .columns(columns::job())
            .defaults(defaults::jobs::job)
            .prepare(strategy::workloads::create_job, keep_status)
            .validate(jobs::job, jobs::job_update)
            .validate_create(workloads::new_workload)
            .validate_status(job_status::update)
            .warnings(strategy::warnings::job),
    ]
}
