//! Disruption budgets.

use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, strategy};
use coracle_validation::scaling;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("policy", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("PodDisruptionBudget", "poddisruptionbudgets")
            .conditional()
            .short(&["pdb"])
            .status()
            .generation()
            .columns(columns::budget())
            .prepare(strategy::workloads::create_budget, keep_status)
            .validate(scaling::budget, |_, _, _| ())
            .validate_status(scaling::budget_status),
    ]
}
