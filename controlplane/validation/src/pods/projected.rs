//! Volumes with files: of secrets, config maps, the downward API, tokens and trust bundles.

use super::env;
use super::paths::{descending, mode};
use crate::field_ref::{Field, FieldRef, reported_at};
use crate::field_rules::TextRules as _;
use coracle_fields::core::v1::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource,
    ServiceAccountTokenProjection,
};
use coracle_fields::{Int32, List, Text};
use coracle_proto::names::dns1123_subdomain;
use std::collections::HashSet;

/// Files of a Secret or a ConfigMap.
pub(super) fn key_files(default_mode: &Field<'_, Int32>, items: &Field<'_, List<KeyToPath>>) {
    mode(default_mode);
    items.items().for_each(|item| key_to_path(&item));
}

fn key_to_path(item: &Field<'_, KeyToPath>) {
    item.key().has_text("");
    item.path().has_text("");
    local(&item.path());
    mode(&item.mode());
}

/// Files of the downward API.
pub(super) fn downward_files(files: &Field<'_, List<DownwardAPIVolumeFile>>, volume: &FieldRef<'_>) {
    files.items().for_each(|file| downward_file(&reported_at(&file, volume), volume));
}

/// A file that reports at its volume, as upstream's do.
fn downward_file(file: &Field<'_, DownwardAPIVolumeFile>, volume: &FieldRef<'_>) {
    file.path().has_text("");
    local(&file.path());
    let (field, resource) = (file.field_ref(), file.resource_field_ref());
    match (field.is_set(), resource.is_set()) {
        (true, both) => {
            env::field(&field, &env::VOLUME_FIELDS);
            if both {
                volume.invalid_as(
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (false, true) => env::resource_field(&resource, true),
        (false, false) => volume.required("one of fieldRef and resourceFieldRef is required"),
    }
    mode(&file.mode());
}

pub(super) fn projected(volume: &Field<'_, ProjectedVolumeSource>) {
    mode(&volume.default_mode());
    let mut paths = HashSet::new();
    let mut once = |path: &str, shown: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            volume.invalid_as(shown, "conflicting duplicate paths");
        }
    };
    for source in volume.sources().items() {
        let mut found = 0;
        let (secret, config_map) = (source.secret(), source.config_map());
        for (is_set, name, items) in [
            (secret.is_set(), secret.name(), secret.items()),
            (config_map.is_set(), config_map.name(), config_map.items()),
        ] {
            if is_set {
                found += 1;
                name.has_text("");
                for item in items.items() {
                    key_to_path(&item);
                    once(item.view().path().text(), name.text());
                }
            }
        }
        let downward = source.downward_api();
        if downward.is_set() {
            found += 1;
            for file in downward.items().items() {
                downward_file(&reported_at(&file, &downward), &downward);
                once(file.view().path().text(), file.view().path().text());
            }
        }
        let token = source.service_account_token();
        if token.is_set() {
            found += 1;
            account_token(&token, volume);
        }
        let bundle = source.cluster_trust_bundle();
        if bundle.is_set() {
            found += 1;
            trust_bundle(&bundle);
            once(bundle.view().path().text(), bundle.view().path().text());
        }
        if found > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn account_token<'a>(token: &Field<'a, ServiceAccountTokenProjection>, volume: &FieldRef<'a>) {
    let seconds = token.expiration_seconds();
    if seconds.int().is_some_and(|seconds| seconds < 600) {
        seconds.invalid("may not specify a duration less than 10 minutes");
    }
    if seconds.int().is_some_and(|seconds| seconds > 1 << 32) {
        seconds.invalid("may not specify a duration larger than 2^32 seconds");
    }
    let path = reported_at(token, volume).path();
    if path.has_text("") {
        local(&path);
    }
}

fn trust_bundle(bundle: &Field<'_, ClusterTrustBundleProjection>) {
    let (name, signer) = (bundle.name(), bundle.signer_name());
    match (name.is_set(), signer.is_set()) {
        (true, true) => bundle.invalid("only one of name and signerName may be used"),
        (true, false) => {
            if name.has_text("must be a valid object name") {
                name.follows(|name| {
                    let wrong = dns1123_subdomain(&name.replace(':', "."));
                    wrong.into_iter().map(|m| format!("not a valid clustertrustbundlename: {m}")).collect()
                });
            }
        }
        (false, true) => {
            signer.has_text("must be a valid signer name");
        }
        (false, false) => bundle.required("either name or signerName must be specified"),
    }
    bundle.path().has_text("");
    local(&bundle.path());
}

/// A relative path that does not climb, nor begin like the directories that the node reserves.
fn local(path: &Field<'_, Text>) {
    descending(path);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'");
    }
}
