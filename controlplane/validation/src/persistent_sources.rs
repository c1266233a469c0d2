//! Sources of PersistentVolumes.

use super::field_errors::Alternatives;
use super::field_ref::{Field, FieldRef, reported_at};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::names::driver_name;
use super::pods::no_backsteps;
use super::volume_sources::{
    LONG_INITIATOR, NO_SOURCE, ONE_SOURCE, aws, azure_disk, fibre_channel, filled, flex_options, flocker,
    gce, host_path, iscsi_name, nfs, quobyte, storageos,
};
use coracle_fields::core::v1::{
    CSIPersistentVolumeSource, GlusterfsPersistentVolumeSource, ISCSIPersistentVolumeSource,
    PersistentVolume, PersistentVolumeSpec,
};
use coracle_proto::names::{dns1123_label, dns1123_subdomain};

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// The annotation with mount options is only for sources that are mounted with options; `spec.mountOptions` is for all.
pub(super) fn mount_options(volume: &Field<'_, PersistentVolume>) {
    let spec = volume.view().spec();
    let takes_options = [
        spec.gce_persistent_disk().is_set(),
        spec.aws_elastic_block_store().is_set(),
        spec.glusterfs().is_set(),
        spec.nfs().is_set(),
        spec.rbd().is_set(),
        spec.quobyte().is_set(),
        spec.iscsi().is_set(),
        spec.cinder().is_set(),
        spec.cephfs().is_set(),
        spec.azure_file().is_set(),
        spec.vsphere_volume().is_set(),
        spec.azure_disk().is_set(),
        spec.photon_persistent_disk().is_set(),
    ];
    let annotated = volume.view().metadata().annotations().key(MOUNT_OPTIONS).is_set();
    if annotated && !takes_options.contains(&true) {
        let path = format!("metadata.annotations.{MOUNT_OPTIONS}");
        volume.below(&path).forbidden("may not specify mount options for this volume type");
    }
}

/// The sources, in the order of upstream, with its paths.
pub(super) fn volume_source(spec: &Field<'_, PersistentVolumeSpec>, volume: &str) {
    let mut sources = Alternatives::new(ONE_SOURCE);
    sources.check(spec.host_path(), host_path);
    sources.check(spec.gce_persistent_disk(), |source| gce(source, spec));
    sources.check(spec.aws_elastic_block_store(), aws);
    sources.check(spec.glusterfs(), glusterfs);
    sources.check(spec.flocker(), flocker);
    sources.check(spec.nfs(), nfs);
    sources.check(spec.rbd(), |source| filled([source.monitors().erased(), source.image().erased()]));
    sources.check(spec.quobyte(), quobyte);
    sources.check(reported_at(&spec.cephfs(), &spec.below("cephFS")), |_| filled([spec.cephfs().monitors()]));
    sources.check(spec.iscsi(), |source| iscsi(source, volume));
    sources.check(spec.cinder(), |source| {
        filled([source.volume_id()]);
        let secret = source.secret_ref();
        if secret.is_set() {
            filled([secret.name(), secret.namespace()]);
        }
    });
    sources.check(spec.fc(), fibre_channel);
    sources.check_always(spec.flex_volume(), |source| {
        filled([source.driver()]);
        flex_options(&source.options());
    });
    sources.check(spec.azure_file(), |source| {
        filled([source.secret_name(), source.share_name()]);
        if source.secret_namespace().is_set() {
            filled([source.secret_namespace()]);
        }
    });
    sources.check(spec.vsphere_volume(), |source| filled([source.volume_path()]));
    sources.check(spec.photon_persistent_disk(), |source| filled([source.pd_id()]));
    sources.check(spec.portworx_volume(), |source| filled([source.volume_id()]));
    sources.check(spec.azure_disk(), azure_disk);
    sources.check(spec.scale_io(), |source| {
        filled([source.gateway(), source.system(), source.volume_name()]);
    });
    sources.check(spec.local(), |source| {
        let path = source.path();
        if path.has_text("") && !no_backsteps(path.text()) {
            path.invalid("must not contain '..'");
        }
        if !spec.node_affinity().is_set() {
            FieldRef::required(&spec.node_affinity(), "Local volume requires node affinity");
        }
    });
    sources.check(spec.storageos(), |source| {
        storageos(&source.volume_name(), &source.volume_namespace());
        let secret = source.secret_ref();
        if secret.is_set() {
            filled([secret.name(), secret.namespace()]);
        }
    });
    sources.check(spec.csi(), csi);
    sources.require(spec, NO_SOURCE);
}

fn glusterfs(source: &Field<'_, GlusterfsPersistentVolumeSource>) {
    filled([source.endpoints(), source.path()]);
    let namespace = source.endpoints_namespace();
    if !namespace.is_set() {
        return;
    }
    if namespace.is_empty() {
        namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name");
    } else {
        namespace.follows(dns1123_label);
    }
}

fn iscsi(source: &Field<'_, ISCSIPersistentVolumeSource>, volume: &str) {
    const UNKNOWN: &str = "must be valid format";
    let (portal, initiator, secret) = (source.target_portal(), source.initiator_name(), source.secret_ref());
    filled([source.target_portal()]);
    if initiator.is_set() && volume.len() + 1 + portal.text().len() > 64 {
        source.below("targetportal").with(portal.value).invalid(LONG_INITIATOR);
    }
    if source.iqn().has_text("") {
        iscsi_name(&source.iqn(), UNKNOWN);
    }
    source.lun().in_range(0, 255);
    if secret.is_set() {
        filled([secret.name()]);
    } else if source.chap_auth_discovery().flag() || source.chap_auth_session().flag() {
        secret.required("");
    }
    if initiator.is_set() {
        iscsi_name(&reported_at(&initiator, &source.below("initiatorname")), UNKNOWN);
    }
}

fn csi(source: &Field<'_, CSIPersistentVolumeSource>) {
    driver_name(&source.driver());
    source.volume_handle().has_text("");
    // Upstream does not look at `nodeStageSecretRef`.
    for secret in [
        source.controller_publish_secret_ref(),
        source.controller_expand_secret_ref(),
        source.node_publish_secret_ref(),
        source.node_expand_secret_ref(),
    ] {
        if secret.is_set() {
            secret.name().named(dns1123_subdomain);
            secret.namespace().named(dns1123_label);
        }
    }
}
