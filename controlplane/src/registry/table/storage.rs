//! Storage classes, drivers and attachments.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("storage.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("CSIDriver", "csidrivers").cluster().generation(),
        row("CSINode", "csinodes").cluster(),
        row("CSIStorageCapacity", "csistoragecapacities"),
        row("StorageClass", "storageclasses").cluster().short(&["sc"]),
        row("VolumeAttachment", "volumeattachments").cluster().status(),
        row("VolumeAttributesClass", "volumeattributesclasses").cluster().short(&["vac"]),
    ]
}
