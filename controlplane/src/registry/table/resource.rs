//! Dynamic resource allocation.

use crate::registry::fields;
use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("resource.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("DeviceClass", "deviceclasses").cluster().generation(),
        row("ResourceClaim", "resourceclaims").status(),
        row("ResourceClaimTemplate", "resourceclaimtemplates"),
        row("ResourceSlice", "resourceslices").cluster().generation().fields(fields::resource_slice()),
    ]
}
