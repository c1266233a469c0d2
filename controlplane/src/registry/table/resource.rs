//! Dynamic resource allocation.

use crate::registry::kinds::Kind;
use crate::registry::{columns, defaults, fields};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("resource.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("DeviceClass", "deviceclasses").cluster().generation(),
        row("ResourceClaim", "resourceclaims")
            .status()
            .columns(columns::resource_claim())
            .defaults(defaults::shares::resource_claim),
        row("ResourceClaimTemplate", "resourceclaimtemplates")
            .defaults(defaults::shares::resource_claim_template),
        row("ResourceSlice", "resourceslices")
            .cluster()
            .generation()
            .fields(fields::resource_slice())
            .columns(columns::resource_slice()),
    ]
}
