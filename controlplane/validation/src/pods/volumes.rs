//! Volumes of pods.

use super::paths::{descending, mode};
use super::projected::{downward_files, key_files, projected};
use crate::claim_spec::claim_spec;
use crate::field_errors::Alternatives;
use crate::field_ref::{Field, reported_at};
use crate::field_rules::{NumberRules as _, TextRules as _};
use crate::meta;
use crate::names::{driver_name, subdomain};
use crate::volume_sources::{
    LONG_INITIATOR, NO_SOURCE, ONE_SOURCE, aws, azure_disk, fibre_channel, filled, flex_options, flocker,
    gce, host_path, iscsi_name, nfs, quobyte, storageos,
};
use coracle_fields::List;
use coracle_fields::core::v1::{
    CSIVolumeSource, EmptyDirVolumeSource, EphemeralVolumeSource, ISCSIVolumeSource, ImageVolumeSource,
    Volume,
};
use coracle_fields::meta::ObjectMeta;
use coracle_proto::names::{dns1123_label, dns1123_subdomain};
use coracle_proto::quantity::Quantity;
use std::collections::HashSet;

pub(super) fn volumes(list: &Field<'_, List<Volume>>, pod_name: &str) {
    let made: HashSet<String> = list
        .view()
        .items()
        .filter(|volume| !pod_name.is_empty() && volume.ephemeral().is_set())
        .map(|volume| format!("{pod_name}-{}", volume.name().text()))
        .collect();
    let mut names = HashSet::new();
    for volume in list.items() {
        let before = volume.errors();
        source(&volume, pod_name);
        let name = volume.name();
        name.named(dns1123_label);
        if names.contains(name.text()) {
            name.duplicate();
        }
        if volume.errors() == before {
            names.insert(name.text());
        }
        let claim = volume.persistent_volume_claim().claim_name();
        if made.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

/// The sources, in the order of upstream, with its paths.
fn source(volume: &Field<'_, Volume>, pod_name: &str) {
    let mut sources = Alternatives::new(ONE_SOURCE);
    sources.check(volume.empty_dir(), empty_dir);
    sources.check(volume.host_path(), host_path);
    sources.check(volume.git_repo(), |source| {
        filled([source.repository()]);
        descending(&source.directory());
    });
    sources.check(volume.gce_persistent_disk(), |source| gce(source, volume));
    sources.check(volume.aws_elastic_block_store(), aws);
    sources.check(volume.secret(), |source| {
        filled([source.secret_name()]);
        key_files(&source.default_mode(), &source.items());
    });
    sources.check(volume.nfs(), nfs);
    sources.check(volume.iscsi(), iscsi);
    iscsi_volume_name(volume);
    sources.check(volume.glusterfs(), |source| filled([source.endpoints(), source.path()]));
    sources.check(volume.flocker(), flocker);
    sources.check(volume.persistent_volume_claim(), |source| filled([source.claim_name()]));
    sources.check(volume.rbd(), |source| filled([source.monitors().erased(), source.image().erased()]));
    sources.check(volume.cinder(), |source| {
        filled([source.volume_id()]);
        if source.secret_ref().is_set() {
            filled([source.secret_ref().name()]);
        }
    });
    sources.check(reported_at(&volume.cephfs(), &volume.below("cephFS")), |_| {
        filled([volume.cephfs().monitors()]);
    });
    sources.check(volume.quobyte(), quobyte);
    sources.check(reported_at(&volume.downward_api(), &volume.below("downwarAPI")), |_| {
        let source = volume.downward_api();
        mode(&source.default_mode());
        downward_files(&source.items(), &source);
    });
    sources.check(volume.fc(), fibre_channel);
    sources.check(volume.flex_volume(), |source| {
        filled([source.driver()]);
        flex_options(&source.options());
    });
    sources.check(volume.config_map(), |source| {
        filled([source.name()]);
        key_files(&source.default_mode(), &source.items());
    });
    sources.check(volume.azure_file(), |source| filled([source.secret_name(), source.share_name()]));
    sources.check(volume.vsphere_volume(), |source| filled([source.volume_path()]));
    sources.check(volume.photon_persistent_disk(), |source| filled([source.pd_id()]));
    sources.check(volume.portworx_volume(), |source| filled([source.volume_id()]));
    sources.check(volume.azure_disk(), azure_disk);
    sources.check(volume.storageos(), |source| {
        storageos(&source.volume_name(), &source.volume_namespace());
        if source.secret_ref().is_set() {
            filled([source.secret_ref().name()]);
        }
    });
    sources.check(volume.projected(), projected);
    sources.check(volume.scale_io(), |source| {
        filled([source.gateway(), source.system(), source.volume_name()]);
    });
    sources.check(volume.csi(), csi);
    sources.check(volume.ephemeral(), |source| ephemeral(source, volume, pod_name));
    sources.check(volume.image(), |source| image(source, pod_name));
    sources.require(volume, NO_SOURCE);
}

fn iscsi(source: &Field<'_, ISCSIVolumeSource>) {
    const UNKNOWN: &str = "must be valid format starting with iqn, eui, or naa";
    filled([source.target_portal()]);
    if source.iqn().has_text("") {
        iscsi_name(&source.iqn(), UNKNOWN);
    }
    source.lun().in_range(0, 255);
    let with_secret = source.chap_auth_discovery().flag() || source.chap_auth_session().flag();
    if with_secret && !source.secret_ref().is_set() {
        source.secret_ref().required("");
    }
    if source.initiator_name().is_set() {
        iscsi_name(&reported_at(&source.initiator_name(), &source.below("initiatorname")), UNKNOWN);
    }
}

/// The initiator is named after the volume, also if another source is used.
fn iscsi_volume_name(volume: &Field<'_, Volume>) {
    let (source, name) = (volume.iscsi(), volume.name());
    let length = name.text().len() + 1 + source.target_portal().text().len();
    if source.initiator_name().is_set() && length > 64 {
        name.invalid_as(name.text(), LONG_INITIATOR);
    }
}

fn empty_dir(source: &Field<'_, EmptyDirVolumeSource>) {
    let limit = source.view().size_limit().text().parse::<Quantity>();
    if limit.is_ok_and(|limit| limit.signum() < 0) {
        source.size_limit().forbidden("SizeLimit field must be a valid resource quantity");
    }
}

fn csi(source: &Field<'_, CSIVolumeSource>) {
    driver_name(&source.driver());
    let secret = source.node_publish_secret_ref();
    if secret.is_set() {
        filled([secret.name()]);
        if !secret.name().is_empty() {
            reported_at(&secret.name(), &source.below("name")).follows(dns1123_subdomain);
        }
    }
}

fn ephemeral(source: &Field<'_, EphemeralVolumeSource>, volume: &Field<'_, Volume>, pod_name: &str) {
    let template = source.volume_claim_template();
    if template.is_set() {
        claim_metadata(&template.metadata());
        claim_spec(&template.spec());
    } else {
        template.required("");
    }
    let name = volume.name();
    if !pod_name.is_empty() && !name.text().is_empty() {
        let claim = format!("{pod_name}-{}", name.text());
        for message in subdomain(&claim, false) {
            name.invalid(format!("PVC name {claim:?}: {message}"));
        }
    }
}

/// A template gives claims labels and annotations, nothing else.
fn claim_metadata(metadata: &Field<'_, ObjectMeta>) {
    meta::annotations(&metadata.annotations());
    meta::labels(&metadata.labels());
    for (name, is_set) in [
        ("name", !metadata.name().is_empty()),
        ("generateName", !metadata.generate_name().is_empty()),
        ("namespace", !metadata.namespace().is_empty()),
        ("selfLink", !metadata.self_link().is_empty()),
        ("uID", !metadata.uid().is_empty()),
        ("resourceVersion", !metadata.resource_version().is_empty()),
        ("generation", !metadata.generation().is_empty()),
        ("creationTimestamp", metadata.creation_timestamp().is_set()),
        ("deletionTimestamp", metadata.deletion_timestamp().is_set()),
        ("deletionGracePeriodSeconds", metadata.deletion_grace_period_seconds().is_set()),
        ("ownerReferences", !metadata.owner_references().is_empty()),
        ("finalizers", !metadata.finalizers().is_empty()),
        ("managedFields", !metadata.managed_fields().is_empty()),
    ] {
        if is_set {
            metadata.below(name).forbidden("cannot be set");
        }
    }
}

/// An image; controllers may fill in the reference of a template's.
fn image(source: &Field<'_, ImageVolumeSource>, pod_name: &str) {
    if !pod_name.is_empty() {
        filled([source.reference()]);
    }
    source.pull_policy().required_one_of(&["Always", "IfNotPresent", "Never"]);
}
