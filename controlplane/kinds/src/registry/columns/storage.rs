//! Columns of volumes, claims, classes and drivers.

use super::{age, column, format, name, number, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// Access modes as people abbreviate them, each once, in a fixed order.
fn modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let there: Vec<&str> = short
        .iter()
        .filter(|(long, _)| modes.iter().any(|mode| mode == long))
        .map(|(_, short)| *short)
        .collect();
    there.join(",")
}

fn phase(object: &Value) -> Value {
    if object.has("metadata.deletionTimestamp") {
        json!("Terminating")
    } else {
        object.at("status.phase").clone()
    }
}

/// The class, which old clients set with an annotation.
fn storage_class(object: &Value) -> Value {
    let annotation = object.at("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    annotation.cloned().unwrap_or_else(|| json!(object.text("spec.storageClassName")))
}

fn attributes_class_name() -> Column {
    text("VolumeAttributesClass", |object| text_or(object, "spec.volumeAttributesClassName", "<unset>"))
}

fn volume_mode() -> Column {
    wide("VolumeMode", |object| text_or(object, "spec.volumeMode", "<unset>"))
}

/// PersistentVolumes.
pub fn persistent_volume() -> Vec<Column> {
    vec![
        name(),
        text("Capacity", |object| text_or(object, "spec.capacity.storage", "0")),
        text("Access Modes", |object| json!(modes(object.items("spec.accessModes")))),
        text("Reclaim Policy", |object| object.at("spec.persistentVolumeReclaimPolicy").clone()),
        text("Status", phase),
        text("Claim", |object| {
            let claim = object.at("spec.claimRef");
            if claim.is_null() {
                return json!("");
            }
            json!(format!("{}/{}", claim.text("namespace"), claim.text("name")))
        }),
        text("StorageClass", storage_class),
        attributes_class_name(),
        text("Reason", |object| json!(object.text("status.reason"))),
        age(),
        volume_mode(),
    ]
}

/// PersistentVolumeClaims.
pub fn claim() -> Vec<Column> {
    fn bound(object: &Value) -> bool {
        !object.text("spec.volumeName").is_empty()
    }
    vec![
        name(),
        text("Status", phase),
        text("Volume", |object| json!(object.text("spec.volumeName"))),
        text("Capacity", |object| {
            if bound(object) { text_or(object, "status.capacity.storage", "0") } else { json!("") }
        }),
        text("Access Modes", |object| {
            if bound(object) { json!(modes(object.items("status.accessModes"))) } else { json!("") }
        }),
        text("StorageClass", storage_class),
        attributes_class_name(),
        age(),
        volume_mode(),
    ]
}

/// StorageClasses.
pub fn class() -> Vec<Column> {
    vec![
        Column {
            format: "name",
            ..text("Name", |object| {
                let annotations = object.at("metadata.annotations");
                let marks = [
                    "storageclass.kubernetes.io/is-default-class",
                    "storageclass.beta.kubernetes.io/is-default-class",
                ];
                let default =
                    marks.iter().any(|mark| annotations.get(mark).is_some_and(|value| value == "true"));
                let suffix = if default { " (default)" } else { "" };
                json!(format!("{}{suffix}", object.text("metadata.name")))
            })
        },
        text("Provisioner", |object| object.at("provisioner").clone()),
        text("ReclaimPolicy", |object| text_or(object, "reclaimPolicy", "Delete")),
        text("VolumeBindingMode", |object| text_or(object, "volumeBindingMode", "Immediate")),
        text("AllowVolumeExpansion", |object| json!(object.flag("allowVolumeExpansion"))),
        age(),
    ]
}

/// VolumeAttributesClasses.
pub fn attributes_class() -> Vec<Column> {
    vec![name(), text("DriverName", |object| object.at("driverName").clone()), age()]
}

/// VolumeAttachments.
pub fn volume_attachment() -> Vec<Column> {
    vec![
        name(),
        Column { format: "name", ..text("Attacher", |object| object.at("spec.attacher").clone()) },
        text("PV", |object| json!(object.text("spec.source.persistentVolumeName"))),
        text("Node", |object| object.at("spec.nodeName").clone()),
        column("Attached", "boolean", |object| json!(object.flag("status.attached"))),
        age(),
    ]
}

/// CSINodes.
pub fn storage_node() -> Vec<Column> {
    vec![name(), number("Drivers", |object| json!(object.items("spec.drivers").len())), age()]
}

/// CSIDrivers.
pub fn driver() -> Vec<Column> {
    vec![
        name(),
        column("AttachRequired", "boolean", |object| {
            json!(object.at("spec.attachRequired").as_bool().unwrap_or(true))
        }),
        column("PodInfoOnMount", "boolean", |object| json!(object.flag("spec.podInfoOnMount"))),
        column("StorageCapacity", "boolean", |object| json!(object.flag("spec.storageCapacity"))),
        text("TokenRequests", |object| {
            if !object.has("spec.tokenRequests") {
                return json!("<unset>");
            }
            let requests = object.items("spec.tokenRequests").iter();
            json!(requests.map(|request| request.text("audience")).collect::<Vec<_>>().join(","))
        }),
        column("RequiresRepublish", "boolean", |object| json!(object.flag("spec.requiresRepublish"))),
        text("Modes", |object| json!(format::or_none(format::texts(object, "spec.volumeLifecycleModes")))),
        age(),
    ]
}

/// CSIStorageCapacities.
pub fn capacity() -> Vec<Column> {
    vec![
        name(),
        text("StorageClassName", |object| object.at("storageClassName").clone()),
        text("Capacity", |object| text_or(object, "capacity", "<unset>")),
    ]
}
