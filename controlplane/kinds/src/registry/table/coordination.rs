//! Leases.

use crate::registry::columns;
use crate::registry::kinds::Kind;
use coracle_validation::cluster;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("coordination.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("Lease", "leases")
            .conditional()
            .lazy()
            .create_on_update()
            .columns(columns::lease())
            .validate(cluster::lease, |_, _, _| ()),
    ]
}
