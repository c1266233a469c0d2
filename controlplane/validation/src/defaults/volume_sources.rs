//! Defaults of the sources that volumes of pods and PersistentVolumes share.

use coracle_fields::Edit;
use coracle_fields::core::v1::Volume;

/// Sources that volumes of pods and PersistentVolumes share. They have the same fields in both.
pub(super) fn source(mut volume: Edit<'_, Volume>) {
    if let Some(mut iscsi) = volume.iscsi().existing() {
        iscsi.iscsi_interface().default("default");
    }
    if let Some(mut rbd) = volume.rbd().existing() {
        rbd.pool().default("rbd");
        rbd.user().default("admin");
        rbd.keyring().default("/etc/ceph/keyring");
    }
    if let Some(mut scale_io) = volume.scale_io().existing() {
        scale_io.storage_mode().default("ThinProvisioned");
        scale_io.fs_type().default("xfs");
    }
    if let Some(mut disk) = volume.azure_disk().existing() {
        disk.caching_mode().default("ReadWrite");
        disk.fs_type().default("ext4");
        disk.kind().default("Shared");
        disk.read_only().default(false);
    }
}
