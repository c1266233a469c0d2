//! Storage classes, drivers and attachments.

use crate::registry::kinds::{Kind, keep_status};
use crate::registry::{columns, defaults, strategy};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("storage.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CSIDriver", "csidrivers")
            .cluster()
            .generation()
            .columns(columns::driver())
            .defaults(defaults::storage::driver),
        row("CSINode", "csinodes").cluster().columns(columns::storage_node()),
        row("CSIStorageCapacity", "csistoragecapacities").columns(columns::capacity()),
        row("StorageClass", "storageclasses")
            .cluster()
            .short(&["sc"])
            .columns(columns::class())
            .defaults(defaults::storage::class),
        row("VolumeAttachment", "volumeattachments")
            .cluster()
            .status()
            .columns(columns::volume_attachment())
            .defaults(defaults::storage::attachment)
            .prepare(strategy::cluster::create_attachment, keep_status),
        row("VolumeAttributesClass", "volumeattributesclasses")
            .cluster()
            .short(&["vac"])
            .columns(columns::attributes_class()),
    ]
}
