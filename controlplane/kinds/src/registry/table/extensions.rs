//! Custom resource definitions.

use crate::registry::kinds::Kind;
use crate::registry::{columns, custom, strategy};
use coracle_validation::{defaults, definitions};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CustomResourceDefinition", "customresourcedefinitions")
            .conditional()
            .cluster()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .status()
            .generation()
            .columns(columns::plain())
            .defaults(defaults::extensions::definition)
            .prepare(strategy::cluster::create_definition, strategy::cluster::update_definition)
            .validate(definitions::definition, custom::default_rules::definition_update)
            .validate_create(custom::default_rules::new_definition)
            .warnings(strategy::formats::definition),
    ]
}
