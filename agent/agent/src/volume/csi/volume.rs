//! A volume of a driver, as a PersistentVolume or a pod describes it. Pure.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CSIVolumeSource, PersistentVolumeSpec, Pod, SecretReference,
};
use std::collections::BTreeMap;

use super::names::{self, VolumeKey};
use crate::pod::spec;

/// A volume of a driver.
#[derive(Clone, Debug, PartialEq)]
pub struct CsiVolume {
    /// Driver and handle.
    pub key: VolumeKey,
    /// Name of the PersistentVolume, or of the pod's volume if it is ephemeral.
    pub name: String,
    /// File system, `""` for the driver's choice.
    pub fs_type: String,
    /// Nobody writes to it.
    pub read_only: bool,
    /// For the driver.
    pub attributes: BTreeMap<String, String>,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// Access modes of the PersistentVolume.
    pub access_modes: Vec<String>,
    /// Secret for staging.
    pub stage_secret: Option<(String, String)>,
    /// Secret for publishing.
    pub publish_secret: Option<(String, String)>,
    /// Secret for expansion.
    pub expand_secret: Option<(String, String)>,
    /// Lives as long as its pod.
    pub is_ephemeral: bool,
    /// A block device instead of a file system.
    pub is_block: bool,
}

impl CsiVolume {
    /// Of a PersistentVolume.
    pub fn persistent(
        name: &str,
        spec: &PersistentVolumeSpec,
        source: &CSIPersistentVolumeSource,
        read_only: bool,
    ) -> Self {
        let secret = |reference: &Option<SecretReference>| {
            let reference = reference.as_ref()?;
            let name = reference.name.clone().filter(|name| !name.is_empty())?;
            Some((reference.namespace.clone().unwrap_or_default(), name))
        };
        Self {
            key: VolumeKey { driver: source.driver.clone(), handle: source.volume_handle.clone() },
            name: name.to_owned(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only: read_only || source.read_only == Some(true),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            mount_options: spec.mount_options.clone().unwrap_or_default(),
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            stage_secret: secret(&source.node_stage_secret_ref),
            publish_secret: secret(&source.node_publish_secret_ref),
            expand_secret: secret(&source.node_expand_secret_ref),
            is_ephemeral: false,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
        }
    }

    /// Written into a pod.
    pub fn ephemeral(pod: &Pod, name: &str, source: &CSIVolumeSource) -> Self {
        let secret = source.node_publish_secret_ref.as_ref().map(|secret| secret.name.clone());
        let secret = secret.filter(|name| !name.is_empty());
        Self {
            key: VolumeKey {
                driver: source.driver.clone(),
                handle: names::ephemeral_handle(spec::uid(pod), name),
            },
            name: name.to_owned(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only: source.read_only == Some(true),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            mount_options: vec![],
            access_modes: vec![],
            stage_secret: None,
            publish_secret: secret.map(|name| (spec::namespace(pod).to_owned(), name)),
            expand_secret: None,
            is_ephemeral: true,
            is_block: false,
        }
    }

    /// Whether only one pod may use it at a time. With several access modes it is not known which of them a pod wants.
    pub fn is_single_pod(&self) -> bool {
        matches!(self.access_modes.as_slice(), [mode] if mode == "ReadWriteOncePod")
    }

    /// As CSIDrivers call it.
    pub fn lifecycle(&self) -> &'static str {
        if self.is_ephemeral { "Ephemeral" } else { "Persistent" }
    }
}
