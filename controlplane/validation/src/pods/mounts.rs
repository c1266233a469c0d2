//! Volume mounts and volume devices of containers.

use super::Pod;
use super::volumes::{descending, no_backsteps};
use crate::field_ref::FieldRef;
use crate::tree::Tree;
use std::collections::{HashMap, HashSet};

pub(super) fn mounts(container: &FieldRef<'_>, pod: &Pod<'_>) {
    let list = container.at("volumeMounts");
    let devices: HashMap<&str, &str> = container
        .value
        .items("volumeDevices")
        .iter()
        .map(|device| (device.text("name"), device.text("devicePath")))
        .collect();
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let mut paths = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        name.has_text("");
        if !pod.volumes.contains_key(name.text()) {
            name.with(&serde_json::json!(name.text())).not_found();
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
        for key in ["subPath", "subPathExpr"] {
            if !mount.at(key).is_empty() {
                descending(&list.at(key).with(mount.value.at(key)));
            }
        }
        if !mount.at("subPath").is_empty() && !mount.at("subPathExpr").is_empty() {
            mount.at("subPathExpr").invalid("subPathExpr and subPath are mutually exclusive");
        }
        let propagation = list.at("mountPropagation").with(mount.value.at("mountPropagation"));
        if propagation.is_set() {
            propagation.one_of(&["Bidirectional", "HostToContainer", "None"]);
            if propagation.text() == "Bidirectional" && !container.value.flag("securityContext.privileged") {
                propagation
                    .forbidden("Bidirectional mount propagation is available only to privileged containers");
            }
        }
        recursive_read_only(&list, &mount);
    }
}

fn recursive_read_only(list: &FieldRef<'_>, mount: &FieldRef<'_>) {
    let mode = list.at("recursiveReadOnly").with(mount.value.at("recursiveReadOnly"));
    match mode.text() {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.value.flag("readOnly") {
                mode.forbidden("may only be specified when readOnly is true");
            }
            if !matches!(mount.value.text("mountPropagation"), "" | "None") {
                mode.forbidden("may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => mode.unsupported(&["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(container: &FieldRef<'_>, pod: &Pod<'_>) {
    let mounts: HashMap<&str, &str> = container
        .value
        .items("volumeMounts")
        .iter()
        .map(|mount| (mount.text("name"), mount.text("mountPath")))
        .collect();
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.each("volumeDevices") {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        name.has_text("");
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.invalid("must be unique");
        }
        match pod.volumes.get(name.text()) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => name.invalid(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
            None => name.with(&serde_json::json!(name.text())).not_found(),
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
