//! The spec of a PersistentVolumeClaim, also inside pods and StatefulSets, and what it shares with PersistentVolumes.

use super::field_ref::{Field, FieldRef, reported_at};
use super::field_rules::TextRules as _;
use super::meta;
use super::quantities::{amount, quantity};
use coracle_fields::core::v1::{PersistentVolumeClaimSpec, TypedObjectReference};
use coracle_fields::{List, Text};
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use serde_json::json;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The access modes of a claim or a volume.
pub(super) fn access_modes(modes: &Field<'_, List<Text>>, detail: &str) {
    if modes.is_empty() {
        modes.required(detail);
    }
    for mode in modes.items().filter(|mode| !MODES.contains(&mode.text())) {
        modes.with(mode.value).unsupported(&MODES);
    }
    let alone = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    let others = modes.items().any(|mode| mode.text() != "ReadWriteOncePod" && MODES.contains(&mode.text()));
    if alone && others {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

/// Whether a quantity is greater than zero; one that is not is reported.
pub(super) fn positive(field: &FieldRef<'_>) -> bool {
    let fine = quantity(field).is_none_or(|quantity| quantity.signum() > 0);
    if !fine {
        field.invalid("must be greater than zero");
    }
    fine
}

/// The spec of a claim, also inside pods and StatefulSets.
pub(super) fn claim_spec(spec: &Field<'_, PersistentVolumeClaimSpec>) {
    access_modes(&spec.access_modes(), "at least 1 access mode is required");
    meta::selector(&spec.selector());
    let size = reported_at(&spec.resources().requests().key("storage"), &spec.below("resources[storage]"));
    if !size.is_set() {
        size.required("");
    } else if positive(&size) {
        amount(&size, "storage");
    }
    if !spec.storage_class_name().is_empty() {
        spec.storage_class_name().follows(dns1123_subdomain);
    }
    if spec.volume_mode().is_set() {
        spec.volume_mode().one_of(&["Block", "Filesystem"]);
    }
    if spec.data_source().is_set() {
        data_source(&spec.data_source().as_type());
    }
    if spec.data_source_ref().is_set() {
        data_source(&spec.data_source_ref());
    }
    let (old, new) = (spec.view().data_source(), spec.view().data_source_ref());
    // Upstream shows a path, which prints as an empty object.
    if !new.namespace().text().is_empty() {
        if old.is_set() {
            spec.invalid_as(json!({}), "may not be specified when dataSourceRef.namespace is specified");
        }
    } else if old.is_set()
        && new.is_set()
        && !(old.api_group().same_as(new.api_group())
            && old.kind().same_as(new.kind())
            && old.name().same_as(new.name()))
    {
        spec.invalid_as(json!({}), "must match dataSourceRef");
    }
    if !spec.volume_attributes_class_name().is_empty() {
        spec.volume_attributes_class_name().follows(dns1123_subdomain);
    }
}

fn data_source(source: &Field<'_, TypedObjectReference>) {
    source.name().has_text("");
    source.kind().has_text("");
    let (group, kind) = (source.api_group(), source.view().kind().text());
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            source.invalid_as(kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
    } else {
        group.follows(dns1123_subdomain);
    }
    if !source.namespace().is_empty() {
        source.namespace().follows(dns1123_label);
    }
}
