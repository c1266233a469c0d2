//! Priorities.

use crate::registry::columns;
use crate::registry::kinds::Kind;
use coracle_validation::cluster;
use coracle_validation::defaults;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("scheduling.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("PriorityClass", "priorityclasses")
            .cluster()
            .short(&["pc"])
            .generation()
            .columns(columns::priority_class())
            .defaults(defaults::cluster::priority_class)
            .validate(cluster::priority_class, cluster::priority_class_update),
    ]
}
