//! Columns of volumes, claims, classes and drivers.

use super::{Column, age, column, format, name, number, text, text_or, wide};
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim};
use coracle_fields::meta::ObjectMeta;
use coracle_fields::storage::v1::{
    CSIDriver, CSINode, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use coracle_fields::{List, Text, View, storage_class};
use serde_json::{Value, json};

/// Access modes as people abbreviate them, each once, in a fixed order.
fn modes(modes: View<'_, List<Text>>) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let there: Vec<&str> =
        short.iter().filter(|(long, _)| modes.has(long)).map(|(_, short)| *short).collect();
    there.join(",")
}

fn phase(meta: View<'_, ObjectMeta>, phase: View<'_, Text>) -> Value {
    if meta.deletion_timestamp().is_set() { json!("Terminating") } else { phase.to_value() }
}

/// PersistentVolumes.
pub fn persistent_volume() -> Vec<Column> {
    vec![
        name(),
        text::<PersistentVolume>("Capacity", |object| {
            text_or(object.spec().capacity().key("storage").text(), "0")
        }),
        text::<PersistentVolume>("Access Modes", |object| json!(modes(object.spec().access_modes()))),
        text::<PersistentVolume>("Reclaim Policy", |object| {
            object.spec().persistent_volume_reclaim_policy().to_value()
        }),
        text::<PersistentVolume>("Status", |object| phase(object.metadata(), object.status().phase())),
        text::<PersistentVolume>("Claim", |object| {
            let claim = object.spec().claim_ref();
            if !claim.is_set() {
                return json!("");
            }
            json!(format!("{}/{}", claim.namespace().text(), claim.name().text()))
        }),
        text::<PersistentVolume>("StorageClass", |object| json!(storage_class::of_volume(object))),
        text::<PersistentVolume>("VolumeAttributesClass", |object| {
            json!(object.spec().volume_attributes_class_name().get().unwrap_or("<unset>"))
        }),
        text::<PersistentVolume>("Reason", |object| json!(object.status().reason().text())),
        age(),
        wide::<PersistentVolume>("VolumeMode", |object| {
            text_or(object.spec().volume_mode().text(), "<unset>")
        }),
    ]
}

/// PersistentVolumeClaims.
pub fn claim() -> Vec<Column> {
    fn bound(object: View<'_, PersistentVolumeClaim>) -> bool {
        !object.spec().volume_name().text().is_empty()
    }
    vec![
        name(),
        text::<PersistentVolumeClaim>("Status", |object| phase(object.metadata(), object.status().phase())),
        text::<PersistentVolumeClaim>("Volume", |object| json!(object.spec().volume_name().text())),
        text::<PersistentVolumeClaim>("Capacity", |object| {
            if !bound(object) {
                return json!("");
            }
            text_or(object.status().capacity().key("storage").text(), "0")
        }),
        text::<PersistentVolumeClaim>("Access Modes", |object| {
            if bound(object) { json!(modes(object.status().access_modes())) } else { json!("") }
        }),
        text::<PersistentVolumeClaim>("StorageClass", |object| {
            json!(storage_class::of_claim(object).unwrap_or_default())
        }),
        text::<PersistentVolumeClaim>("VolumeAttributesClass", |object| {
            json!(object.spec().volume_attributes_class_name().get().unwrap_or("<unset>"))
        }),
        age(),
        wide::<PersistentVolumeClaim>("VolumeMode", |object| {
            text_or(object.spec().volume_mode().text(), "<unset>")
        }),
    ]
}

/// StorageClasses.
pub fn class() -> Vec<Column> {
    vec![
        Column {
            format: "name",
            ..text::<StorageClass>("Name", |object| {
                let annotations = object.metadata().annotations();
                let marks = [
                    "storageclass.kubernetes.io/is-default-class",
                    "storageclass.beta.kubernetes.io/is-default-class",
                ];
                let default = marks.iter().any(|mark| annotations.key(mark) == "true");
                let suffix = if default { " (default)" } else { "" };
                json!(format!("{}{suffix}", object.metadata().name().text()))
            })
        },
        text::<StorageClass>("Provisioner", |object| object.provisioner().to_value()),
        text::<StorageClass>("ReclaimPolicy", |object| text_or(object.reclaim_policy().text(), "Delete")),
        text::<StorageClass>("VolumeBindingMode", |object| {
            text_or(object.volume_binding_mode().text(), "Immediate")
        }),
        text::<StorageClass>("AllowVolumeExpansion", |object| json!(object.allow_volume_expansion().flag())),
        age(),
    ]
}

/// VolumeAttributesClasses.
pub fn attributes_class() -> Vec<Column> {
    vec![name(), text::<VolumeAttributesClass>("DriverName", |object| object.driver_name().to_value()), age()]
}

/// VolumeAttachments.
pub fn volume_attachment() -> Vec<Column> {
    let attacher = text::<VolumeAttachment>("Attacher", |object| object.spec().attacher().to_value());
    vec![
        name(),
        Column { format: "name", ..attacher },
        text::<VolumeAttachment>("PV", |object| {
            json!(object.spec().source().persistent_volume_name().text())
        }),
        text::<VolumeAttachment>("Node", |object| object.spec().node_name().to_value()),
        column::<VolumeAttachment>("Attached", "boolean", |object| json!(object.status().attached().flag())),
        age(),
    ]
}

/// CSINodes.
pub fn storage_node() -> Vec<Column> {
    vec![name(), number::<CSINode>("Drivers", |object| json!(object.spec().drivers().len())), age()]
}

/// CSIDrivers.
pub fn driver() -> Vec<Column> {
    vec![
        name(),
        column::<CSIDriver>("AttachRequired", "boolean", |object| {
            json!(object.spec().attach_required().get().unwrap_or(true))
        }),
        column::<CSIDriver>("PodInfoOnMount", "boolean", |object| {
            json!(object.spec().pod_info_on_mount().flag())
        }),
        column::<CSIDriver>("StorageCapacity", "boolean", |object| {
            json!(object.spec().storage_capacity().flag())
        }),
        text::<CSIDriver>("TokenRequests", |object| {
            let requests = object.spec().token_requests();
            if !requests.is_set() {
                return json!("<unset>");
            }
            let audiences: Vec<&str> = requests.items().map(|request| request.audience().text()).collect();
            json!(audiences.join(","))
        }),
        column::<CSIDriver>("RequiresRepublish", "boolean", |object| {
            json!(object.spec().requires_republish().flag())
        }),
        text::<CSIDriver>("Modes", |object| {
            json!(format::or_none(format::texts(object.spec().volume_lifecycle_modes())))
        }),
        age(),
    ]
}
