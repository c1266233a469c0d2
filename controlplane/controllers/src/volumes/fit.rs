//! Which volume suits a claim. No clock, no tasks.

use coracle_fields::core::v1;
use coracle_fields::fields;
use coracle_informer::selector::{Labels, Selector};
use coracle_kinds::object::Object;
use coracle_proto::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

fields! {
    /// A PersistentVolumeClaim.
    pub struct ClaimObject: v1::PersistentVolumeClaim {
        /// Wanted state.
        pub spec: Claim,
    }

    /// A claim.
    #[derive(Debug, Clone)]
    pub struct Claim: v1::PersistentVolumeClaimSpec {
        /// Access modes.
        pub access_modes: Vec<String>,
        /// Labels of the volume.
        pub selector: Option<Selector>,
        /// What is asked for.
        pub resources: Resources,
        /// The volume, once bound.
        pub volume_name: String,
        /// Class; unset: the default one.
        pub storage_class_name: Option<String>,
        /// `Filesystem` or `Block`.
        pub volume_mode: String,
        /// Class of attributes.
        pub volume_attributes_class_name: String,
    }

    /// What is asked for.
    #[derive(Debug, Clone)]
    pub struct Resources: v1::VolumeResourceRequirements {
        /// By resource; only `storage` counts.
        pub requests: BTreeMap<String, Value>,
    }

    /// A PersistentVolume.
    pub struct VolumeObject: v1::PersistentVolume {
        /// Wanted state.
        pub spec: Volume,
    }

    /// A volume.
    #[derive(Debug, Clone)]
    pub struct Volume: v1::PersistentVolumeSpec {
        /// Sizes.
        pub capacity: BTreeMap<String, Value>,
        /// Access modes.
        pub access_modes: Vec<String>,
        /// The claim it is bound to, or kept for.
        pub claim_ref: Option<ClaimRef>,
        /// Class.
        pub storage_class_name: String,
        /// `Filesystem` or `Block`.
        pub volume_mode: String,
        /// Class of attributes.
        pub volume_attributes_class_name: String,
        /// `Retain` or `Delete`.
        pub persistent_volume_reclaim_policy: String,
    }

    /// A reference to a claim.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClaimRef: v1::ObjectReference {
        /// Namespace.
        pub namespace: String,
        /// Name.
        pub name: String,
        /// Uid; empty when the volume is kept for a claim that may come.
        pub uid: String,
    }
}

/// The size of something, in bytes.
pub fn size(map: &BTreeMap<String, Value>) -> Option<Quantity> {
    let text = match map.get("storage")? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.parse().ok()
}

/// Why a volume cannot serve a claim.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is being deleted.
    #[error("the volume is marked for deletion {0:?}")]
    Deleting(String),
    /// It is smaller than the claim.
    #[error("requested PV is too small")]
    Size,
    /// It is of another class.
    #[error("storageClassName does not match")]
    Class,
    /// It has other attributes.
    #[error("volumeAttributesClassName does not match")]
    AttributesClass,
    /// One is a block device, the other is a file system.
    #[error("incompatible volumeMode")]
    VolumeMode,
    /// It lacks an access mode.
    #[error("incompatible accessMode")]
    AccessMode,
}

/// Whether a volume that names a claim can be bound to it: class and labels do not matter then.
pub fn could_hold(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    let mode = |m: &str| if m.is_empty() { "Filesystem".to_owned() } else { m.to_owned() };
    let large_enough = match (size(&claim.resources.requests), size(&volume.capacity)) {
        (Some(asked), Some(has)) => has >= asked,
        (None, _) => true,
        _ => false,
    };
    if !large_enough {
        return Err(Mismatch::Size);
    }
    if claim.volume_attributes_class_name != volume.volume_attributes_class_name {
        return Err(Mismatch::AttributesClass);
    }
    if mode(&claim.volume_mode) != mode(&volume.volume_mode) {
        return Err(Mismatch::VolumeMode);
    }
    if !claim.access_modes.iter().all(|m| volume.access_modes.contains(m)) {
        return Err(Mismatch::AccessMode);
    }
    Ok(())
}

/// Whether the volume that a claim names can be bound to it.
pub fn satisfies(claim: &Claim, volume: &Volume, object: &Object) -> Result<(), Mismatch> {
    if object.meta.deletion_timestamp.is_some() {
        return Err(Mismatch::Deleting(object.meta.name.clone()));
    }
    if volume.storage_class_name != claim.storage_class_name.as_deref().unwrap_or_default() {
        return Err(Mismatch::Class);
    }
    could_hold(claim, volume)
}

/// Whether a volume that is free could serve a claim.
pub fn suits(claim: &Claim, class: &str, volume: &Volume, labels: &Labels) -> bool {
    volume.storage_class_name == class
        && claim.selector.as_ref().is_none_or(|s| s.matches(labels))
        && could_hold(claim, volume).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn size_class_modes_and_labels_must_fit() {
        let claim: Claim = serde_json::from_value(json!({"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"disk": "ssd"}}}))
        .unwrap();
        let volume = |change: Value| -> Volume {
            let mut base = json!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"});
            for (key, value) in change.as_object().unwrap() {
                base[key] = value.clone();
            }
            serde_json::from_value(base).unwrap()
        };
        let ssd = Labels::from([("disk".into(), "ssd".into())]);
        assert!(suits(&claim, "fast", &volume(json!({})), &ssd));
        assert!(!suits(&claim, "slow", &volume(json!({})), &ssd));
        assert!(!suits(&claim, "fast", &volume(json!({})), &Labels::new()));
        assert!(!suits(&claim, "fast", &volume(json!({"capacity": {"storage": "512Mi"}})), &ssd));
        assert!(!suits(&claim, "fast", &volume(json!({"accessModes": ["ReadOnlyMany"]})), &ssd));
        assert!(!suits(&claim, "fast", &volume(json!({"volumeMode": "Block"})), &ssd));
    }
}
