//! What a driver is asked. Pure.

use coracle_csi::Capabilities;
use coracle_csi::v1::VolumeCapability;
use coracle_csi::v1::volume_capability::access_mode::Mode;
use coracle_csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
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
    let access_type = if volume.is_block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: volume.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        })
    };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: access_mode(volume, capabilities) as i32 }),
        access_type: Some(access_type),
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
    if volume.read_only || volume.is_block || capabilities.mount_group {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::volume::csi::names::VolumeKey;
    use serde_json::json;

    fn volume(mode: &str) -> CsiVolume {
        CsiVolume {
            key: VolumeKey { driver: "d".into(), handle: "h".into() },
            name: "pv".into(),
            fs_type: "ext4".into(),
            read_only: false,
            attributes: [("a".to_owned(), "b".to_owned())].into(),
            mount_options: vec!["noatime".into()],
            access_modes: vec![mode.into()],
            stage_secret: None,
            publish_secret: None,
            expand_secret: None,
            is_ephemeral: false,
            is_block: false,
        }
    }

    #[test]
    fn access_modes() {
        let single = Capabilities { single_writer: true, ..Capabilities::default() };
        for (mode, plain, modern) in [
            ("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter),
            ("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter),
            ("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            ("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
        ] {
            assert_eq!(access_mode(&volume(mode), Capabilities::default()), plain, "{mode}");
            assert_eq!(access_mode(&volume(mode), single), modern, "{mode}");
        }
    }

    #[test]
    fn a_group_goes_to_the_driver_or_to_the_files() {
        let of = |policy: Option<&str>| CSIDriverSpec {
            fs_group_policy: policy.map(str::to_owned),
            ..CSIDriverSpec::default()
        };
        let (plain, group) =
            (Capabilities::default(), Capabilities { mount_group: true, ..Capabilities::default() });
        let read_only = CsiVolume { read_only: true, ..volume("ReadWriteOnce") };
        let block = CsiVolume { is_block: true, ..volume("ReadWriteOnce") };
        let no_type = CsiVolume { fs_type: String::new(), ..volume("ReadWriteOnce") };
        for (volume, policy, capabilities, want) in [
            (volume("ReadWriteOnce"), None, plain, true),
            (volume("ReadWriteOnce"), None, group, false),
            (volume("ReadWriteMany"), None, plain, false),
            (volume("ReadWriteMany"), Some("File"), plain, true),
            (volume("ReadWriteOnce"), Some("None"), plain, false),
            (read_only, Some("File"), plain, false),
            (block, Some("File"), plain, false),
            (no_type.clone(), Some("ReadWriteOnceWithFSType"), plain, false),
            (no_type, Some("File"), plain, true),
        ] {
            assert_eq!(takes_group(&volume, &of(policy), capabilities), want, "{volume:?} {policy:?}");
        }
        let text =
            |capabilities| match capability(&volume("ReadWriteOnce"), capabilities, Some(7)).access_type {
                Some(AccessType::Mount(mount)) => mount.volume_mount_group,
                other => panic!("{other:?}"),
            };
        assert_eq!((text(plain), text(group)), (String::new(), "7".to_owned()));
    }

    #[test]
    fn drivers_learn_of_pods_only_if_they_want_to() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"serviceAccountName": "s", "containers": []},
        }))
        .unwrap();
        let silent = context(&volume("ReadWriteOnce"), &CSIDriverSpec::default(), &pod);
        assert_eq!(silent, HashMap::from([("a".to_owned(), "b".to_owned())]));
        let curious = CSIDriverSpec { pod_info_on_mount: Some(true), ..CSIDriverSpec::default() };
        let told = context(&volume("ReadWriteOnce"), &curious, &pod);
        assert_eq!(told["csi.storage.k8s.io/pod.uid"], "u");
        assert_eq!(told["csi.storage.k8s.io/serviceAccount.name"], "s");
        assert_eq!(told["csi.storage.k8s.io/ephemeral"], "false");
    }
}
