//! Field rules of volumes, claims, classes and drivers.

use super::claim_spec::{access_modes, claim_spec, positive};
use super::field_errors::unique;
use super::field_ref::{Field, FieldRef, reported_at, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::meta;
use super::names::driver_name;
use super::persistent_sources::{mount_options, volume_source};
use super::pods::scheduling::node_selector;
use super::quantities::{amount, is_native, quantity};
use super::ratchet;
use super::volume_affinity::with_stable_labels;
use crate::tree::{same, same_at};
use coracle_fields::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    TopologySelectorTerm,
};
use coracle_fields::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttachmentStatus,
    VolumeAttributesClass,
};
use coracle_fields::{Amount, List, Made, Map, Schema, Text, View, storage_class};
use coracle_proto::names::{dns1123_subdomain, qualified_name};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Fields of a PersistentVolume's spec that are no sources.
const NOT_SOURCES: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

/// 256 KiB for all metadata of an attachment together.
const ATTACHED_MAX: usize = 256 * 1024;

/// How far the resize of a claim is.
const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// A PersistentVolumeClaim.
pub fn claim(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PersistentVolumeClaim>(object, errors, |root| claim_spec(&root.spec()));
}

/// A change of a claim: only its size may grow, and a class may be filled in.
pub fn claim_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (claim, old) = (PersistentVolumeClaim::of(new), PersistentVolumeClaim::of(old));
    let bound = claim.status().phase() == "Bound";
    let (mut now, before) = (Made::<PersistentVolumeClaimSpec>::new(claim.spec().to_value()), old.spec());
    if before.volume_name().text().is_empty() {
        now.edit().volume_name().set(before.volume_name());
    }
    let annotated = old.metadata().annotations().key(storage_class::ANNOTATION);
    let class = claim.spec().storage_class_name();
    if !before.storage_class_name().is_set()
        && class.is_set()
        && (!annotated.is_set() || class.same_as(annotated))
    {
        now.edit().storage_class_name().clear();
    }
    if bound {
        now.edit().volume_attributes_class_name().set(before.volume_attributes_class_name());
    }
    if bound && now.view().resources().requests().is_set() {
        let size = before.resources().requests().key("storage");
        if size.is_set() {
            now.edit().resources().requests().insert("storage", size);
        } else {
            now.edit().resources().requests().remove("storage");
        }
    }
    // A class moves from the annotation to the spec; otherwise the annotation stays as it is.
    let annotation = claim.metadata().annotations().key(storage_class::ANNOTATION);
    let moves = annotated.is_set()
        && !before.storage_class_name().is_set()
        && class.same_as(annotated)
        && (!annotation.is_set() || annotation.same_as(annotated));
    walk_as::<PersistentVolumeClaim>(new, errors, |root| {
        if !moves && annotation.text() != annotated.text() {
            let path = format!("metadata.annotations.{}", storage_class::ANNOTATION);
            root.below(&path).with(&json!(annotation.text())).invalid("field is immutable");
        }
        let spec = root.spec();
        if !same_at(now.view(), before) {
            spec.forbidden(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            );
        }
        let size = |list: View<'_, Map<Amount>>| {
            list.key("storage").text().parse::<Quantity>().unwrap_or_else(|_| Quantity::zero())
        };
        let wanted = size(spec.view().resources().requests());
        if wanted < size(before.resources().requests()) && wanted <= size(old.status().capacity()) {
            let requests = spec.resources().requests();
            requests.below("storage").forbidden("field can not be less than status.capacity");
        }
        let mode = reported_at(&spec.volume_mode(), &root.below("volumeMode"));
        mode.immutable(before.volume_mode());
        let attributes = spec.volume_attributes_class_name();
        if old.status().current_volume_attributes_class_name().is_set()
            && attributes.is_empty()
            && !attributes.view().same_as(before.volume_attributes_class_name())
        {
            let none = if attributes.is_set() { "empty string" } else { "nil" };
            attributes.forbidden(format!(
                "update to {none} is forbidden when status.currentVolumeAttributesClassName is not nil"
            ));
        }
    });
}

/// A change of a claim's status. Earlier versions stored any status: what was wrong before may stay.
pub fn claim_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    ratchet::changed(status_of_claim, new, old, errors);
}

fn status_of_claim(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PersistentVolumeClaim>(object, errors, |root| {
        let status = root.status();
        for (_, size) in status.capacity().entries() {
            is_amount(&size);
        }
        let states = status.allocated_resource_statuses();
        for (name, state) in states.entries() {
            is_resizable(&states, name);
            if !RESIZES.contains(&state.text()) {
                // Upstream shows the resource, not what it has.
                states.with(&json!(name)).unsupported(&RESIZES);
            }
        }
        let allocated = status.allocated_resources();
        for (name, size) in allocated.entries() {
            if is_resizable(&allocated, name) && is_amount(&size) {
                amount(&size, "storage");
            }
        }
    });
}

/// Whether claims have such a resource; what is wrong is reported.
fn is_resizable(list: &FieldRef<'_>, name: &str) -> bool {
    let wrong = qualified_name(name);
    if wrong.is_empty() && is_native(name) && name != "storage" {
        list.with(&json!(name)).unsupported(&["storage"]);
        return false;
    }
    let fits = wrong.is_empty();
    wrong.into_iter().for_each(|message| list.invalid_as(name, message));
    fits
}

/// Whether an amount is not negative; one that is is reported.
fn is_amount(size: &Field<'_, Amount>) -> bool {
    let whole = size.text().parse::<Quantity>().map_or(0, |size| size.value());
    if whole < 0 {
        size.invalid_as(whole, "must be a valid resource quantity");
    }
    whole >= 0
}

/// A PersistentVolume.
pub fn volume(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PersistentVolume>(object, errors, |root| {
        let spec = root.spec();
        access_modes(&spec.access_modes(), "");
        let capacity = spec.capacity();
        if capacity.is_empty() {
            capacity.required("");
        }
        if capacity.len() != 1 || !capacity.view().has_key("storage") {
            // What is not there is shown as such: the field is no text.
            capacity.report(FieldError::unsupported(capacity.path(), capacity.value, &["storage"]));
        }
        for (_, size) in capacity.entries() {
            is_amount(&size);
            positive(&size);
        }
        if !spec.persistent_volume_reclaim_policy().is_empty() {
            spec.persistent_volume_reclaim_policy().one_of(&["Delete", "Recycle", "Retain"]);
        }
        let affinity = spec.node_affinity();
        if affinity.is_set() {
            if affinity.required().is_set() {
                node_selector(&affinity.required());
            } else {
                affinity.required().required("must specify required node constraints");
            }
        }
        volume_source(&spec, root.view().metadata().name().text());
        let path = spec.view().host_path().path().text();
        if spec.view().persistent_volume_reclaim_policy().text() == "Recycle" && is_root(path) {
            spec.persistent_volume_reclaim_policy()
                .forbidden("may not be 'recycle' for a hostPath mount of '/'");
        }
        if !spec.storage_class_name().is_empty() {
            spec.storage_class_name().follows(dns1123_subdomain);
        }
        if spec.volume_mode().is_set() {
            spec.volume_mode().one_of(&["Block", "Filesystem"]);
        }
        let class = spec.volume_attributes_class_name();
        if class.is_set() {
            if class.has_text("an empty string is disallowed") {
                class.follows(dns1123_subdomain);
            }
            if !spec.csi().is_set() {
                spec.csi().required("has to be specified when using volumeAttributesClassName");
            }
        }
        mount_options(&root);
    });
}

/// Whether a path is that of the root, however it is written.
fn is_root(path: &str) -> bool {
    let depth = path.split('/').fold(0_usize, |depth, part| match part {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    path.starts_with('/') && depth == 0
}

/// A change of a volume: what it is made of stays.
pub fn volume_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let source = |volume: View<'_, PersistentVolume>| {
        let mut spec = volume.spec().to_value();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !NOT_SOURCES.contains(&name.as_str()));
        }
        spec
    };
    let old = PersistentVolume::of(old);
    let (before, mut now) = (source(old), source(PersistentVolume::of(new)));
    if old.spec().csi().is_set() && !old.spec().csi().controller_expand_secret_ref().is_set() {
        PersistentVolumeSpec::edit(&mut now).csi().controller_expand_secret_ref().clear();
    }
    if !same(&now, &before) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    walk_as::<PersistentVolume>(new, errors, |root| {
        let mode = reported_at(&root.spec().volume_mode(), &root.below("volumeMode"));
        mode.immutable(old.spec().volume_mode());
        if old.spec().node_affinity().is_set() {
            let affinity = reported_at(&root.spec().node_affinity(), &root.below("nodeAffinity"));
            let before = with_stable_labels(old.spec().node_affinity(), affinity.view());
            affinity
                .immutable_because(&before, "field is immutable, except for updating from beta label to GA");
        }
        let class = root.spec().volume_attributes_class_name();
        if old.spec().volume_attributes_class_name().is_set() && !class.is_set() {
            class.forbidden("update from non-nil value to nil is forbidden");
        }
    });
}

/// A StorageClass.
pub fn class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<StorageClass>(object, errors, |root| {
        provisioner(&root.provisioner());
        parameters(&root.parameters());
        root.reclaim_policy().one_of(&["Delete", "Retain"]);
        let mode = root.volume_binding_mode();
        if mode.is_set() {
            mode.one_of(&["Immediate", "WaitForFirstConsumer"]);
        } else {
            mode.required("");
        }
        topologies(&root.allowed_topologies());
    });
}

fn provisioner(name: &Field<'_, Text>) {
    if name.has_text("") {
        let lower = name.text().to_lowercase();
        for message in qualified_name(&lower) {
            name.invalid_as(lower.as_str(), message);
        }
    }
}

/// No two terms, and none without expressions, are the same: upstream compares each also with one that is empty.
fn topologies(terms: &Field<'_, List<TopologySelectorTerm>>) {
    let mut seen: HashSet<BTreeMap<&str, BTreeSet<&str>>> = HashSet::from([BTreeMap::new()]);
    for term in terms.items() {
        let mut asked = BTreeMap::new();
        for expression in term.match_label_expressions().items() {
            let (key, values) = (expression.key(), expression.values());
            if values.is_empty() {
                values.required("");
            }
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.text()) {
                    value.duplicate();
                }
            }
            key.follows(qualified_name);
            if asked.insert(key.text(), set).is_some() {
                key.duplicate();
            }
        }
        if !seen.insert(asked) {
            term.match_label_expressions().with(&json!("")).duplicate();
        }
    }
}

fn parameters(parameters: &Field<'_, Map<Text>>) {
    if parameters.len() > 512 {
        return parameters.too_long(512);
    }
    let mut size = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_as(key, "field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > 256 * 1024 {
        parameters.too_long(256 * 1024);
    }
}

/// What a class provisions with never changes.
pub fn class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = StorageClass::of(old);
    walk_as::<StorageClass>(new, errors, |root| {
        root.parameters().immutable(old.parameters());
        root.provisioner().immutable(old.provisioner());
        root.reclaim_policy().immutable(old.reclaim_policy());
        root.volume_binding_mode().immutable(old.volume_binding_mode());
    });
}

/// A VolumeAttributesClass.
pub fn attributes_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<VolumeAttributesClass>(object, errors, |root| {
        // Not the name of a CSI driver, though it is one: what provisions may have any qualified name.
        provisioner(&root.driver_name());
        parameters(&root.parameters());
        if root.parameters().is_empty() {
            root.parameters().required("must contain at least one key/value pair");
        }
    });
}

/// A VolumeAttributesClass never changes.
pub fn attributes_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = VolumeAttributesClass::of(old);
    walk_as::<VolumeAttributesClass>(new, errors, |root| {
        for (name, field, was) in [
            ("driverName", root.driver_name().erased(), old.driver_name().erased()),
            ("parameters", root.parameters().erased(), old.parameters().erased()),
        ] {
            if !same_at(field.view(), was) {
                field.forbidden(format!("updates to {name} are forbidden."));
            }
        }
    });
}

/// A VolumeAttachment.
pub fn attachment(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<VolumeAttachment>(object, errors, |root| {
        let spec = root.spec();
        driver_name(&spec.attacher());
        let (inline, name) = (spec.source().inline_volume_spec(), spec.source().persistent_volume_name());
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (inline.is_set(), name.is_set()) {
            (false, false) => spec.source().required(one),
            (true, true) => spec.source().forbidden(one),
            (false, true) => {
                name.has_text("must specify non empty persistentVolumeName");
            }
            (true, false) => {}
        }
        spec.node_name().follows(dns1123_subdomain);
        attachment_state(&root.status());
        if name.is_set() {
            name.follows(dns1123_subdomain);
        }
    });
}

/// A change of an attachment's status. Earlier versions stored any status: what was wrong before may stay.
pub fn attachment_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    ratchet::changed(status_of_attachment, new, old, errors);
}

fn status_of_attachment(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<VolumeAttachment>(object, errors, |root| attachment_state(&root.status()));
}

/// What a driver says of an attachment is not too long.
fn attachment_state(status: &Field<'_, VolumeAttachmentStatus>) {
    let metadata = status.attachment_metadata();
    let size: usize = metadata.view().entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > ATTACHED_MAX {
        metadata.too_long(ATTACHED_MAX);
    }
    for error in [status.attach_error(), status.detach_error()] {
        if error.message().text().len() > 1024 {
            // Upstream names the limit of the metadata.
            error.message().too_long(ATTACHED_MAX);
        }
        error.error_code().in_range(0, i64::from(i32::MAX));
    }
}

/// What is attached where never changes.
pub fn attachment_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = VolumeAttachment::of(old);
    walk_as::<VolumeAttachment>(new, errors, |root| {
        root.spec().immutable(old.spec());
    });
}

/// A CSIDriver.
pub fn driver(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CSIDriver>(object, errors, |root| {
        let spec = root.spec();
        for field in [spec.attach_required(), spec.pod_info_on_mount(), spec.storage_capacity()] {
            if !field.is_set() {
                field.required("");
            }
        }
        if spec.fs_group_policy().is_set() {
            spec.fs_group_policy().one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
        }
        for mode in spec.volume_lifecycle_modes().items() {
            if !matches!(mode.text(), "Persistent" | "Ephemeral") {
                spec.volume_lifecycle_modes().with(mode.value).unsupported(&["Ephemeral", "Persistent"]);
            }
        }
        let mut audiences = HashSet::new();
        for request in spec.token_requests().items() {
            let seconds = request.expiration_seconds();
            if !audiences.insert(request.view().audience().text()) {
                let audience = json!(request.view().audience().text());
                request.audience().with(&audience).duplicate();
            } else if seconds.int().is_some_and(|seconds| seconds < 600) {
                seconds.invalid("may not specify a duration less than 10 minutes");
            } else if seconds.int().is_some_and(|seconds| seconds > 1 << 32) {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
        }
        let period = spec.node_allocatable_update_period_seconds();
        if period.int().is_some_and(|seconds| seconds < 10) {
            period.invalid("must be greater than or equal to 10 seconds");
        }
    });
}

/// How a driver attaches never changes.
pub fn driver_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = CSIDriver::of(old);
    walk_as::<CSIDriver>(new, errors, |root| {
        let attach = reported_at(&root.spec().attach_required(), &root.below("spec.attachedRequired"));
        attach.immutable(old.spec().attach_required());
        root.spec().volume_lifecycle_modes().immutable(old.spec().volume_lifecycle_modes());
    });
}

/// A CSINode.
pub fn storage_node(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CSINode>(object, errors, |root| {
        let drivers = root.spec().drivers();
        unique(drivers.items().map(|driver| driver.name()));
        for driver in drivers.items() {
            driver_name(&driver.name());
            let id = driver.node_id();
            if id.has_text("") && id.text().len() > 256 {
                id.invalid("must be 256 characters or less");
            }
            driver.allocatable().count().non_negative();
            let mut seen = HashSet::new();
            for key in driver.topology_keys().items() {
                // Upstream reports keys at the driver.
                let (field, text) = (reported_at(&key, &driver), key.text());
                if text.is_empty() {
                    field.required("");
                }
                if !seen.insert(text) {
                    field.duplicate();
                }
                field.follows(qualified_name);
            }
        }
    });
}

/// A CSIStorageCapacity.
pub fn capacity(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CSIStorageCapacity>(object, errors, |root| {
        root.storage_class_name().named(dns1123_subdomain);
        meta::selector(&root.node_topology());
        for field in [root.capacity(), root.maximum_volume_size()] {
            if quantity(&field).is_some_and(|quantity| quantity.signum() < 0) {
                field.invalid("must be greater than or equal to 0");
            }
        }
    });
}

/// What a capacity is about never changes.
pub fn capacity_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = CSIStorageCapacity::of(old);
    walk_as::<CSIStorageCapacity>(new, errors, |root| {
        root.node_topology().immutable(old.node_topology());
        root.storage_class_name().immutable(old.storage_class_name());
    });
}

#[cfg(test)]
mod tests;
