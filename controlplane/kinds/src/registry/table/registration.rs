//! Aggregated API servers.

use crate::registry::columns;
use crate::registry::kinds::{Kind, NameRule, keep_status};
use crate::registry::strategy::cluster;
use coracle_validation::defaults;
use coracle_validation::extensions;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("apiregistration.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("APIService", "apiservices")
            .conditional()
            .cluster()
            .category("api-extensions")
            .status_only()
            // The name of the core group's ends in a dot.
            .names(NameRule::PathSegment)
            .prepare(cluster::create_api_service, keep_status)
            .columns(columns::api_service())
            .defaults(defaults::extensions::api_service)
            .validate(extensions::api_service, |_, _, _| ()),
    ]
}
