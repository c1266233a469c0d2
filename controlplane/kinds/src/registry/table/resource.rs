//! Dynamic resource allocation.

use crate::registry::kinds::Kind;
use crate::registry::{columns, fields};
use coracle_validation::{compiled, defaults, devices, ratchet};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("resource.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("DeviceClass", "deviceclasses")
            .returns_deleted()
            .cluster()
            .generation()
            .validate(devices::class, |new, old, errors| {
                ratchet::changed(compiled::device_class, new, old, errors);
            })
            .validate_create(compiled::device_class),
        row("ResourceClaim", "resourceclaims")
            .returns_deleted()
            .status_only()
            .columns(columns::resource_claim())
            .defaults(defaults::devices::resource_claim)
            .validate_create(devices::claim)
            .validate(|_, _| (), devices::spec_update)
            .validate_status(devices::claim_status),
        row("ResourceClaimTemplate", "resourceclaimtemplates")
            .returns_deleted()
            .defaults(defaults::devices::resource_claim_template)
            .validate_create(devices::template)
            .validate(|_, _| (), devices::spec_update),
        row("ResourceSlice", "resourceslices")
            .returns_deleted()
            .cluster()
            .generation()
            .fields(fields::resource_slice())
            .defaults(defaults::devices::resource_slice)
            .columns(columns::resource_slice())
            .validate(devices::slice, devices::slice_update),
    ]
}
