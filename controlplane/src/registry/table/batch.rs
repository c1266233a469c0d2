//! Jobs.

use crate::registry::fields;
use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("batch", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CronJob", "cronjobs").short(&["cj"]).category("all").status().generation(),
        row("Job", "jobs").category("all").status().generation().fields(fields::job()),
    ]
}
