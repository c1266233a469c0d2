//! Defaults of volumes, claims, classes and drivers.

use super::containers::canonical_requirements;
use super::quantities::canonical_resources;
use super::volumes;
use crate::tree::{Grow, Tree};
use serde_json::{Value, json};

/// A PersistentVolumeClaim.
pub fn claim(object: &mut Value) {
    claim_spec(object.section("spec"));
    let status = object.section("status");
    status.default("phase", "Pending");
    if let Some(capacity) = status.existing("capacity") {
        canonical_resources(capacity);
    }
}

pub(super) fn claim_spec(spec: &mut Value) {
    spec.default("volumeMode", "Filesystem");
    canonical_requirements(spec.section("resources"));
    // The old field means the new one when only it is set, for kinds that a claim may always be made from.
    if !spec.has("dataSourceRef") && spec.has("dataSource") {
        let source = spec.at("dataSource").clone();
        spec.put("dataSourceRef", source);
    } else if spec.has("dataSourceRef")
        && !spec.has("dataSource")
        && spec.text("dataSourceRef.namespace").is_empty()
    {
        let source = spec.at("dataSourceRef").clone();
        spec.put("dataSource", source);
    }
}

/// A PersistentVolume.
pub fn volume(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("persistentVolumeReclaimPolicy", "Retain");
    spec.default("volumeMode", "Filesystem");
    if let Some(path) = spec.existing("hostPath")
        && !path.has("type")
    {
        path.put("type", "");
    }
    if let Some(capacity) = spec.existing("capacity") {
        canonical_resources(capacity);
    }
    volumes::source(spec);
    object.section("status").default("phase", "Pending");
}

/// A StorageClass.
pub fn class(object: &mut Value) {
    object.default("reclaimPolicy", "Delete");
    object.default("volumeBindingMode", "Immediate");
}

/// A CSIDriver.
pub fn driver(object: &mut Value) {
    let spec = object.section("spec");
    spec.default("attachRequired", true);
    spec.default("podInfoOnMount", false);
    spec.default("storageCapacity", false);
    spec.default("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.default_empty("volumeLifecycleModes", json!(["Persistent"]));
    spec.default("requiresRepublish", false);
    spec.default("seLinuxMount", false);
}

/// A VolumeAttachment says whether it is attached.
pub fn attachment(object: &mut Value) {
    object.section("status").default("attached", false);
}
