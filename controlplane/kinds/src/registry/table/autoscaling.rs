//! Autoscalers: v2 is stored, v1 is a view on it.

use crate::registry::convert::autoscalers::STORED_AS;
use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, strategy};
use coracle_validation::defaults;
use coracle_validation::scaling;

fn row(version: &str) -> Kind {
    Kind::new("autoscaling", version, "HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .short(&["hpa"])
        .category("all")
        .status()
        .columns(columns::autoscaler())
        .prepare(strategy::workloads::create_autoscaler, keep_status)
        .validate(scaling::autoscaler, scaling::autoscaler_update)
        .validate_create(scaling::new_autoscaler)
        .validate_status(scaling::autoscaler_status)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("v2").defaults(defaults::autoscalers::v2),
        row("v1").defaults(defaults::autoscalers::v1).stored_as(STORED_AS),
    ]
}
