//! Disruption budgets.

use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, strategy};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("policy", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("PodDisruptionBudget", "poddisruptionbudgets")
            .short(&["pdb"])
            .status()
            .generation()
            .columns(columns::budget())
            .prepare(strategy::workloads::create_budget, keep_status),
    ]
}
