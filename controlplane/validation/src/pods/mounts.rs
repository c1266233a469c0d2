//! Volume mounts and volume devices of containers.

use super::facts::PodFacts;
use super::paths::{descending, no_backsteps};
use crate::field_ref::{Field, reported_at};
use crate::field_rules::TextRules as _;
use coracle_fields::core::v1::{Container, VolumeMount};
use serde_json::json;
use std::collections::{HashMap, HashSet};

pub(super) fn mounts(container: &Field<'_, Container>, pod: &PodFacts<'_>) {
    let list = container.volume_mounts();
    let devices = container.view().volume_devices().items();
    let devices: HashMap<&str, &str> =
        devices.map(|device| (device.name().text(), device.device_path().text())).collect();
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let mut paths = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.name(), mount.mount_path());
        name.has_text("");
        if !pod.volumes.contains_key(name.text()) {
            name.with(&json!(name.text())).not_found();
        }
        path.has_text("");
        if !paths.insert(path.text()) {
            path.invalid("must be unique");
        }
        if devices.contains_key(name.text()) {
            name.invalid("must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            path.invalid("must not already exist as a path in volumeDevices");
        }
        // Upstream reports what follows at the list, not at the item.
        let at_list = reported_at(&mount, &list);
        for sub_path in [at_list.sub_path(), at_list.sub_path_expr()] {
            if !sub_path.is_empty() {
                descending(&sub_path);
            }
        }
        if !mount.sub_path().is_empty() && !mount.sub_path_expr().is_empty() {
            mount.sub_path_expr().invalid("subPathExpr and subPath are mutually exclusive");
        }
        let propagation = at_list.mount_propagation();
        if propagation.is_set() {
            propagation.one_of(&["Bidirectional", "HostToContainer", "None"]);
            let privileged = container.view().security_context().privileged().flag();
            if propagation.text() == "Bidirectional" && !privileged {
                propagation
                    .forbidden("Bidirectional mount propagation is available only to privileged containers");
            }
        }
        recursive_read_only(&at_list);
    }
}

fn recursive_read_only(mount: &Field<'_, VolumeMount>) {
    let mode = mount.recursive_read_only();
    match mode.text() {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.view().read_only().flag() {
                mode.forbidden("may only be specified when readOnly is true");
            }
            if !matches!(mount.view().mount_propagation().text(), "" | "None") {
                mode.forbidden("may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => mode.unsupported(&["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(container: &Field<'_, Container>, pod: &PodFacts<'_>) {
    let mounts = container.view().volume_mounts().items();
    let mounts: HashMap<&str, &str> =
        mounts.map(|mount| (mount.name().text(), mount.mount_path().text())).collect();
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.volume_devices().items() {
        let (name, path) = (device.name(), device.device_path());
        name.has_text("");
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.invalid("must be unique");
        }
        match pod.volumes.get(name.text()) {
            Some(volume) if !volume.persistent_volume_claim().is_set() && !volume.ephemeral().is_set() => {
                name.invalid(
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
            None => name.with(&json!(name.text())).not_found(),
        }
        path.has_text("");
        if !no_backsteps(path.text()) {
            path.invalid("can not contain backsteps ('..')");
        } else if !paths.insert(path.text()) {
            path.invalid("must be unique");
        }
        if mounts.contains_key(name.text()) {
            name.invalid("must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            path.invalid("must not already exist as a path in volumeMounts");
        }
    }
}
