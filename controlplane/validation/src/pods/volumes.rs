//! Volumes of pods.

use super::env;
use crate::field_ref::FieldRef;
use crate::names::subdomain;
use crate::storage;
use crate::tree::Tree;
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use coracle_proto::quantity::Quantity;
use std::collections::HashSet;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Sources in the order they are looked at, with the fields that must be there.
const SOURCES: [(&str, &[&str]); 29] = [
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &["registry", "volume"]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &[]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
];

pub(super) fn volumes(list: &FieldRef<'_>, pod_name: &str) {
    let made: HashSet<String> = list
        .value
        .as_array()
        .into_iter()
        .flatten()
        .filter(|volume| !pod_name.is_empty() && volume.has("ephemeral"))
        .map(|volume| format!("{pod_name}-{}", volume.text("name")))
        .collect();
    let mut names = HashSet::new();
    for volume in list.items() {
        source(&volume, pod_name);
        let name = volume.at("name");
        name.named(dns1123_label);
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
        let claim = volume.at("persistentVolumeClaim.claimName");
        if made.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

fn source(volume: &FieldRef<'_>, pod_name: &str) {
    let mut found = 0;
    let image = [("image", &[] as &[&str])];
    for (key, required) in SOURCES.iter().chain(&image) {
        let entry = volume.at(key);
        if !entry.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            entry.forbidden("may not specify more than 1 volume type");
            continue;
        }
        for field in *required {
            if entry.at(field).is_empty() {
                entry.at(field).required("");
            }
        }
        details(key, &entry, volume, pod_name);
    }
    if found == 0 {
        volume.required("must specify a volume type");
    }
}

fn details(key: &str, entry: &FieldRef<'_>, volume: &FieldRef<'_>, pod_name: &str) {
    match key {
        "emptyDir" => {
            let limit = entry.value.text("sizeLimit").parse::<Quantity>();
            if limit.is_ok_and(|limit| limit.signum() < 0) {
                entry.at("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => host_path(entry),
        "gitRepo" => descending(&entry.at("directory")),
        "nfs" if !entry.value.text("path").starts_with('/') => {
            entry.at("path").invalid_as(entry.value.text("path"), "must be an absolute path");
        }
        "secret" | "configMap" => {
            mode(&entry.at("defaultMode"));
            entry.each("items").for_each(|item| key_to_path(&item));
        }
        "downwardAPI" => {
            mode(&entry.at("defaultMode"));
            entry.each("items").for_each(|item| downward_file(&item, entry));
        }
        "projected" => projected(entry),
        "csi" => {
            storage::driver_name(&entry.at("driver"));
            let secret = entry.at("nodePublishSecretRef");
            if secret.is_set() {
                secret.at("name").has_text("");
            }
        }
        "ephemeral" => {
            let template = entry.at("volumeClaimTemplate");
            if template.is_set() {
                storage::claim_spec(&template.at("spec"));
            }
            let name = volume.value.text("name");
            if !pod_name.is_empty() && !name.is_empty() {
                let claim = format!("{pod_name}-{name}");
                for message in subdomain(&claim, false) {
                    volume.at("name").invalid(format!("PVC name {claim:?}: {message}"));
                }
            }
        }
        "image" => {
            entry.at("pullPolicy").required_one_of(&["Always", "IfNotPresent", "Never"]);
            let reference = entry.at("reference");
            if reference.text().is_empty() {
                reference.required("");
            }
        }
        _ => {}
    }
}

/// A path on the host.
pub(crate) fn host_path(field: &FieldRef<'_>) {
    if !no_backsteps(field.value.text("path")) {
        field.at("path").invalid("must not contain '..'");
    }
    let kinds =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if field.at("type").is_set() {
        field.at("type").one_of(&kinds);
    }
}

fn mode(mode: &FieldRef<'_>) {
    if mode.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        mode.invalid(FILE_MODE);
    }
}

fn key_to_path(item: &FieldRef<'_>) {
    item.at("key").has_text("");
    item.at("path").has_text("");
    local(&item.at("path"));
    mode(&item.at("mode"));
}

/// Files of the downward API report at their volume, as upstream's do.
fn downward_file(file: &FieldRef<'_>, at: &FieldRef<'_>) {
    let here = |key: &str| at.at(key).with(file.value.at(key));
    here("path").has_text("");
    local(&here("path"));
    match (here("fieldRef").is_set(), here("resourceFieldRef").is_set()) {
        (true, both) => {
            env::field(&here("fieldRef"), &env::VOLUME_FIELDS);
            if both {
                at.invalid_as(
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (false, true) => env::resource_field(&here("resourceFieldRef"), true),
        (false, false) => at.required("one of fieldRef and resourceFieldRef is required"),
    }
    mode(&here("mode"));
}

fn projected(field: &FieldRef<'_>) {
    mode(&field.at("defaultMode"));
    let mut paths = HashSet::new();
    let mut once = |path: &str, shown: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            field.invalid_as(shown, "conflicting duplicate paths");
        }
    };
    for source in field.each("sources") {
        let mut found = 0;
        for kind in ["secret", "configMap"] {
            let from = source.at(kind);
            if from.is_set() {
                found += 1;
                from.at("name").has_text("");
                for item in from.each("items") {
                    key_to_path(&item);
                    once(item.value.text("path"), from.value.text("name"));
                }
            }
        }
        if source.at("downwardAPI").is_set() {
            found += 1;
            for file in source.each("downwardAPI.items") {
                downward_file(&file, &source.at("downwardAPI"));
                once(file.value.text("path"), file.value.text("path"));
            }
        }
        let token = source.at("serviceAccountToken");
        if token.is_set() {
            found += 1;
            let seconds = token.at("expirationSeconds");
            if seconds.int().is_some_and(|seconds| seconds < 600) {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if seconds.int().is_some_and(|seconds| seconds > 1 << 32) {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
            let path = field.at("path").with(token.value.at("path"));
            if path.has_text("") {
                local(&path);
            }
        }
        let bundle = source.at("clusterTrustBundle");
        if bundle.is_set() {
            found += 1;
            trust_bundle(&bundle);
            once(bundle.value.text("path"), bundle.value.text("path"));
        }
        if found > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn trust_bundle(bundle: &FieldRef<'_>) {
    match (bundle.at("name").is_set(), bundle.at("signerName").is_set()) {
        (true, true) => bundle.invalid("only one of name and signerName may be used"),
        (true, false) => {
            if bundle.at("name").has_text("must be a valid object name") {
                bundle.at("name").follows(|name| {
                    let wrong = dns1123_subdomain(&name.replace(':', "."));
                    wrong.into_iter().map(|m| format!("not a valid clustertrustbundlename: {m}")).collect()
                });
            }
        }
        (false, true) => {
            bundle.at("signerName").has_text("must be a valid signer name");
        }
        (false, false) => bundle.required("either name or signerName must be specified"),
    }
    bundle.at("path").has_text("");
    local(&bundle.at("path"));
}

/// A relative path that does not climb.
pub(super) fn descending(path: &FieldRef<'_>) {
    if path.text().starts_with('/') {
        path.invalid("must be a relative path");
    }
    if !no_backsteps(path.text()) {
        path.invalid("must not contain '..'");
    }
}

/// A relative path that does not climb, nor begin like the directories that the node reserves.
fn local(path: &FieldRef<'_>) {
    descending(path);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'");
    }
}

pub(super) fn no_backsteps(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}
