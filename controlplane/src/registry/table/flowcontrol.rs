//! Priority and fairness.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("flowcontrol.apiserver.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("FlowSchema", "flowschemas").cluster().status().generation(),
        row("PriorityLevelConfiguration", "prioritylevelconfigurations").cluster().status().generation(),
    ]
}
