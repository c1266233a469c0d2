//! Volumes of pods.

use super::paths::{descending, mode, no_backsteps};
use super::projected::{downward_files, key_files, projected};
use crate::claim_spec::claim_spec;
use crate::field_errors::Alternatives;
use crate::field_ref::Field;
use crate::field_rules::TextRules as _;
use crate::names::{driver_name, subdomain};
use coracle_fields::List;
use coracle_fields::core::v1::{
    CSIVolumeSource, EmptyDirVolumeSource, EphemeralVolumeSource, HostPathVolumeSource, ImageVolumeSource,
    NFSVolumeSource, Volume,
};
use coracle_proto::names::dns1123_label;
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
        source(&volume, pod_name);
        let name = volume.name();
        name.named(dns1123_label);
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
        let claim = volume.persistent_volume_claim().claim_name();
        if made.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

/// The sources, in the order of upstream.
fn source(volume: &Field<'_, Volume>, pod_name: &str) {
    let mut sources = Alternatives::new("may not specify more than 1 volume type");
    sources.check(volume.empty_dir(), empty_dir);
    sources.check(volume.host_path(), |source| {
        filled([source.path()]);
        host_path(source);
    });
    sources.check(volume.git_repo(), |source| {
        filled([source.repository()]);
        descending(&source.directory());
    });
    sources.check(volume.gce_persistent_disk(), |source| filled([source.pd_name()]));
    sources.check(volume.aws_elastic_block_store(), |source| filled([source.volume_id()]));
    sources.check(volume.secret(), |source| {
        filled([source.secret_name()]);
        key_files(&source.default_mode(), &source.items());
    });
    sources.check(volume.nfs(), nfs);
    sources.check(volume.iscsi(), |source| filled([source.target_portal(), source.iqn()]));
    sources.check(volume.glusterfs(), |source| filled([source.endpoints(), source.path()]));
    sources.check(volume.flocker(), |_| {});
    sources.check(volume.persistent_volume_claim(), |source| filled([source.claim_name()]));
    sources.check(volume.rbd(), |source| filled([source.monitors().erased(), source.image().erased()]));
    sources.check(volume.cinder(), |source| filled([source.volume_id()]));
    sources.check(volume.cephfs(), |source| filled([source.monitors()]));
    sources.check(volume.quobyte(), |source| filled([source.registry(), source.volume()]));
    sources.check(volume.downward_api(), |source| {
        mode(&source.default_mode());
        downward_files(&source.items(), source);
    });
    sources.check(volume.fc(), |_| {});
    sources.check(volume.flex_volume(), |source| filled([source.driver()]));
    sources.check(volume.config_map(), |source| {
        filled([source.name()]);
        key_files(&source.default_mode(), &source.items());
    });
    sources.check(volume.azure_file(), |source| filled([source.secret_name(), source.share_name()]));
    sources.check(volume.vsphere_volume(), |source| filled([source.volume_path()]));
    sources.check(volume.photon_persistent_disk(), |source| filled([source.pd_id()]));
    sources.check(volume.portworx_volume(), |source| filled([source.volume_id()]));
    sources.check(volume.azure_disk(), |source| filled([source.disk_name(), source.disk_uri()]));
    sources.check(volume.storageos(), |_| {});
    sources.check(volume.projected(), projected);
    sources.check(volume.scale_io(), |source| {
        filled([source.gateway(), source.system(), source.volume_name()]);
    });
    sources.check(volume.csi(), csi);
    sources.check(volume.ephemeral(), |source| ephemeral(source, volume, pod_name));
    sources.check(volume.image(), image);
    sources.require(volume, "must specify a volume type");
}

/// Fields that must not be empty.
fn filled<T, const N: usize>(fields: [Field<'_, T>; N]) {
    for field in fields {
        if field.is_empty() {
            field.required("");
        }
    }
}

fn empty_dir(source: &Field<'_, EmptyDirVolumeSource>) {
    let limit = source.view().size_limit().text().parse::<Quantity>();
    if limit.is_ok_and(|limit| limit.signum() < 0) {
        source.size_limit().forbidden("SizeLimit field must be a valid resource quantity");
    }
}

fn nfs(source: &Field<'_, NFSVolumeSource>) {
    filled([source.server(), source.path()]);
    let path = source.path();
    if !path.text().starts_with('/') {
        path.invalid_as(path.text(), "must be an absolute path");
    }
}

fn csi(source: &Field<'_, CSIVolumeSource>) {
    filled([source.driver()]);
    driver_name(&source.driver());
    let secret = source.node_publish_secret_ref();
    if secret.is_set() {
        secret.name().has_text("");
    }
}

fn ephemeral(source: &Field<'_, EphemeralVolumeSource>, volume: &Field<'_, Volume>, pod_name: &str) {
    let template = source.volume_claim_template();
    if template.is_empty() {
        template.required("");
    }
    if template.is_set() {
        claim_spec(&template.spec());
    }
    let name = volume.name();
    if !pod_name.is_empty() && !name.text().is_empty() {
        let claim = format!("{pod_name}-{}", name.text());
        for message in subdomain(&claim, false) {
            name.invalid(format!("PVC name {claim:?}: {message}"));
        }
    }
}

fn image(source: &Field<'_, ImageVolumeSource>) {
    source.pull_policy().required_one_of(&["Always", "IfNotPresent", "Never"]);
    let reference = source.reference();
    if reference.text().is_empty() {
        reference.required("");
    }
}

/// A path on the host.
pub(crate) fn host_path(source: &Field<'_, HostPathVolumeSource>) {
    if !no_backsteps(source.view().path().text()) {
        source.path().invalid("must not contain '..'");
    }
    let kinds =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if source.type_().is_set() {
        source.type_().one_of(&kinds);
    }
}
