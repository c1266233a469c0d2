//! What a driver is asked. Pure.

use coracle_csi::Capabilities;
use coracle_csi::v1::VolumeCapability;
use coracle_csi::v1::volume_capability::access_mode::Mode;
use coracle_csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use std::collections::HashMap;

use super::volume::CsiVolume;
use crate::pod::spec;

/// Who may use the volume how, by the first access mode of its PersistentVolume. Ephemeral volumes have one writer.
fn access_mode(volume: &CsiVolume, capabilities: Capabilities) -> Mode {
    match volume.access_modes.first().map(String::as_str) {
        Some("ReadOnlyMany") => Mode::MultiNodeReaderOnly,
        Some("ReadWriteMany") => Mode::MultiNodeMultiWriter,
        Some("ReadWriteOncePod") if capabilities.single_writer => Mode::SingleNodeSingleWriter,
        Some("ReadWriteOnce") if capabilities.single_writer => Mode::SingleNodeMultiWriter,
        _ => Mode::SingleNodeWriter,
    }
}

/// How the volume is mounted; `group` for drivers that give files to a group themselves.
pub fn capability(volume: &CsiVolume, capabilities: Capabilities, group: Option<u32>) -> VolumeCapability {
    let group = group.filter(|_| capabilities.mount_group);
    VolumeCapability {
        access_mode: Some(AccessMode { mode: access_mode(volume, capabilities) as i32 }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: volume.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        })),
    }
}

/// Attributes of the volume, and of the pod if the driver wants to know.
pub fn context(volume: &CsiVolume, driver: &CSIDriverSpec, pod: &Pod) -> HashMap<String, String> {
    let mut context: HashMap<String, String> = volume.attributes.clone().into_iter().collect();
    if driver.pod_info_on_mount == Some(true) {
        let of = spec::spec(pod);
        let account = of.service_account_name.as_deref().unwrap_or_default();
        for (key, value) in [
            ("pod.name", spec::name(pod)),
            ("pod.namespace", spec::namespace(pod)),
            ("pod.uid", spec::uid(pod)),
            ("serviceAccount.name", account),
            ("ephemeral", if volume.is_ephemeral { "true" } else { "false" }),
        ] {
            context.insert(format!("csi.storage.k8s.io/{key}"), value.to_owned());
        }
    }
    context
}

/// Whether the node gives the volume's files to a pod's group.
pub fn takes_group(volume: &CsiVolume, driver: &CSIDriverSpec, capabilities: Capabilities) -> bool {
    if volume.read_only || capabilities.mount_group {
        return false;
    }
    match driver.fs_group_policy.as_deref() {
        Some("None") => false,
        Some("File") => true,
        _ => {
            let once = volume.access_modes.iter().any(|mode| mode == "ReadWriteOnce");
            !volume.fs_type.is_empty() && (once || volume.is_ephemeral)
        }
    }
}
