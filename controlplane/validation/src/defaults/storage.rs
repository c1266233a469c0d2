//! Defaults of volumes, claims, classes and drivers.

use super::quantities::canonical_resources;
use super::volume_sources;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use coracle_fields::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use coracle_fields::{Edit, Schema};
use serde_json::Value;

/// A PersistentVolumeClaim.
pub fn claim(object: &mut Value) {
    fill_claim(PersistentVolumeClaim::edit(object));
}

pub(super) fn fill_claim(mut claim: Edit<'_, PersistentVolumeClaim>) {
    claim_spec(claim.spec().section());
    let mut status = claim.status().section();
    status.phase().default("Pending");
    canonical_resources(status.capacity());
}

pub(super) fn claim_spec(mut spec: Edit<'_, PersistentVolumeClaimSpec>) {
    spec.volume_mode().default("Filesystem");
    let mut resources = spec.resources().section();
    canonical_resources(resources.limits());
    canonical_resources(resources.requests());
}

/// A PersistentVolume.
pub fn volume(object: &mut Value) {
    let mut volume = PersistentVolume::edit(object);
    let mut spec = volume.spec().section();
    spec.persistent_volume_reclaim_policy().default("Retain");
    spec.volume_mode().default("Filesystem");
    if let Some(mut path) = spec.host_path().existing() {
        path.type_().default("");
    }
    canonical_resources(spec.capacity());
    volume_sources::source(spec.like());
    volume.status().phase().default("Pending");
}

/// A StorageClass.
pub fn class(object: &mut Value) {
    let mut class = StorageClass::edit(object);
    class.reclaim_policy().default("Delete");
    class.volume_binding_mode().default("Immediate");
}

/// A CSIDriver.
pub fn driver(object: &mut Value) {
    let mut driver = CSIDriver::edit(object);
    let mut spec = driver.spec().section();
    spec.attach_required().default(true);
    spec.pod_info_on_mount().default(false);
    spec.storage_capacity().default(false);
    spec.fs_group_policy().default("ReadWriteOnceWithFSType");
    spec.volume_lifecycle_modes().default_empty(["Persistent"]);
    spec.requires_republish().default(false);
    spec.se_linux_mount().default(false);
}

/// A VolumeAttachment says whether it is attached.
pub fn attachment(object: &mut Value) {
    VolumeAttachment::edit(object).status().attached().default(false);
}
