//! Custom resource definitions.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CustomResourceDefinition", "customresourcedefinitions")
            .cluster()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .status()
            .generation(),
    ]
}
