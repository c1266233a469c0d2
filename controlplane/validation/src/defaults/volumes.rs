//! Defaults of volumes inside pods.

use super::{pull_policy, storage};
use crate::tree::{Grow, Tree};
use serde_json::{Value, json};

/// Octal 0644, the mode of files that come from the API.
const FILE_MODE: i64 = 0o644;

pub(super) fn volume(volume: &mut Value) {
    let sourceless =
        volume.as_object().is_some_and(|fields| fields.iter().all(|(key, v)| key == "name" || v.is_null()));
    if sourceless {
        volume.put("emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.existing(source) {
            source.default("defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = volume.existing("downwardAPI") {
        downward.each("items", field_version);
    }
    if let Some(projected) = volume.existing("projected") {
        projected.each("sources", |source| {
            if let Some(token) = source.existing("serviceAccountToken") {
                token.default("expirationSeconds", 3600);
            }
            if let Some(downward) = source.existing("downwardAPI") {
                downward.each("items", field_version);
            }
        });
    }
    if let Some(path) = volume.existing("hostPath")
        && !path.has("type")
    {
        path.put("type", "");
    }
    if let Some(image) = volume.existing("image") {
        let policy = pull_policy(image.text("reference"));
        image.default("pullPolicy", policy);
    }
    if let Some(template) =
        volume.existing("ephemeral").and_then(|volume| volume.existing("volumeClaimTemplate"))
    {
        template.section("metadata");
        storage::claim_spec(template.section("spec"));
    }
    source(volume);
}

/// Sources that volumes of pods and PersistentVolumes share.
pub(super) fn source(volume: &mut Value) {
    let plain: &[(&str, &[(&str, &str)])] = &[
        ("iscsi", &[("iscsiInterface", "default")]),
        ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
        ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
        ("azureDisk", &[("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")]),
    ];
    for (source, fields) in plain {
        if let Some(source) = volume.existing(source) {
            for (key, value) in *fields {
                source.default(key, *value);
            }
        }
    }
    if let Some(disk) = volume.existing("azureDisk") {
        disk.default("readOnly", false);
    }
}

fn field_version(item: &mut Value) {
    if let Some(field) = item.existing("fieldRef") {
        field.default("apiVersion", "v1");
    }
}
