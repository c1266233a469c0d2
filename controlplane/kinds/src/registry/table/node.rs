//! Runtime classes.

use crate::registry::kinds::Kind;
use crate::registry::{columns, strategy};
use coracle_validation::cluster;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("node.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("RuntimeClass", "runtimeclasses")
            .conditional()
            .create_on_update()
            .cluster()
            .columns(columns::runtime_class())
            .validate(cluster::runtime_class, cluster::runtime_class_update)
            .warnings(strategy::deprecations::runtime_class),
    ]
}
