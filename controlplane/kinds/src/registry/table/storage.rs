//! Storage classes, drivers and attachments.

use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, strategy};
use coracle_validation::defaults;
use coracle_validation::storage;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("storage.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CSIDriver", "csidrivers")
            .conditional()
            .returns_deleted()
            .cluster()
            .generation()
            .columns(columns::driver())
            .defaults(defaults::storage::driver)
            .validate(storage::driver, storage::driver_update)
            .warnings(strategy::deprecations::driver),
        row("CSINode", "csinodes")
            .conditional()
            .returns_deleted()
            .cluster()
            .columns(columns::storage_node())
            .validate(storage::storage_node, |_, _, _| ()),
        row("CSIStorageCapacity", "csistoragecapacities")
            .conditional()
            .columns(columns::plain())
            .validate(storage::capacity, storage::capacity_update),
        row("StorageClass", "storageclasses")
            .returns_deleted()
            .cluster()
            .short(&["sc"])
            .columns(columns::class())
            .defaults(defaults::storage::class)
            .validate(storage::class, storage::class_update)
            .warnings(strategy::deprecations::class),
        row("VolumeAttachment", "volumeattachments")
            .conditional()
            .returns_deleted()
            .cluster()
            .status_only()
            .columns(columns::volume_attachment())
            .defaults(defaults::storage::attachment)
            .prepare(strategy::cluster::create_attachment, keep_status)
            .validate(storage::attachment, storage::attachment_update)
            .validate_status(storage::attachment_status),
        row("VolumeAttributesClass", "volumeattributesclasses")
            .returns_deleted()
            .cluster()
            .short(&["vac"])
            .columns(columns::attributes_class())
            .validate(storage::attributes_class, storage::attributes_class_update),
    ]
}
