//! Endpoint slices.

use crate::registry::kinds::Kind;
use crate::registry::{columns, strategy};
use coracle_validation::defaults;
use coracle_validation::endpoints;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("discovery.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("EndpointSlice", "endpointslices")
            .generation()
            .columns(columns::endpoint_slice())
            .defaults(defaults::network::endpoint_slice)
            .prepare(strategy::network::create_slice, strategy::network::update_slice)
            .validate(endpoints::slice, endpoints::slice_update)
            .validate_create(endpoints::new_slice)
            .warnings(strategy::warnings::endpoint_slice),
    ]
}
