//! Names of volumes, and the paths that drivers see. Both are those of Kubernetes: drivers and their charts know them.

use sha2::{Digest, Sha256};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A volume of a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeKey {
    /// Name of the driver.
    pub driver: String,
    /// The driver's name of the volume.
    pub handle: String,
}

impl VolumeKey {
    /// The name in `status.volumesInUse` and `status.volumesAttached` of a Node.
    pub fn unique(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.handle)
    }

    /// Name of the VolumeAttachment that attaches it to a node.
    pub fn attachment(&self, node: &str) -> String {
        format!("csi-{}", hex(&[&self.handle, &self.driver, node]))
    }
}

/// The handle of a volume that lives as long as its pod.
pub fn ephemeral_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", hex(&[uid, volume]))
}

fn hex(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.as_bytes()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Directories below the kubelet's.
#[derive(Clone, Debug)]
pub struct Paths(PathBuf);

impl Paths {
    /// In this directory.
    pub fn new(kubelet_dir: &Path) -> Self {
        Self(kubelet_dir.to_owned())
    }

    /// Where plugins put their registration sockets.
    pub fn registry(&self) -> PathBuf {
        self.0.join("plugins_registry")
    }

    /// Where plugins put their own sockets, each in a directory of its own.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("plugins")
    }

    /// Directories of all staged volumes, by driver.
    pub fn all_staged(&self) -> PathBuf {
        self.plugins().join("kubernetes.io/csi")
    }

    /// Directory of a staged volume.
    pub fn staged(&self, key: &VolumeKey) -> PathBuf {
        self.all_staged().join(&key.driver).join(hex(&[&key.handle]))
    }

    /// Where a driver stages a volume.
    pub fn staging_target(&self, key: &VolumeKey) -> PathBuf {
        self.staged(key).join("globalmount")
    }

    /// Where a driver stages a volume of either kind.
    pub fn staging_of(&self, key: &VolumeKey, name: &str, is_block: bool) -> PathBuf {
        if is_block { self.device_staging(name) } else { self.staging_target(key) }
    }

    /// Where a driver publishes a volume of either kind.
    pub fn target_of(&self, uid: &str, name: &str, is_block: bool) -> PathBuf {
        if is_block { self.device_target(uid, name) } else { self.target(uid, name) }
    }

    fn devices(&self) -> PathBuf {
        self.all_staged().join("volumeDevices")
    }

    /// Where a driver stages a block volume.
    pub fn device_staging(&self, name: &str) -> PathBuf {
        self.devices().join("staging").join(name)
    }

    /// Where a driver publishes a block volume for a pod: a device node.
    pub fn device_target(&self, uid: &str, name: &str) -> PathBuf {
        self.devices().join("publish").join(name).join(uid)
    }

    /// A link to the device of a pod, for programs of the node that look for it there, such as backups.
    pub fn device_link(&self, uid: &str, name: &str) -> PathBuf {
        self.pods().join(uid).join("volumeDevices/kubernetes.io~csi").join(name)
    }

    /// Directories of pods.
    pub fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// Directories of a pod's volumes.
    pub fn of_pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid).join("volumes/kubernetes.io~csi")
    }

    /// Directory of a pod's volume.
    pub fn published(&self, uid: &str, name: &str) -> PathBuf {
        self.of_pod(uid).join(name)
    }

    /// Where a driver publishes a volume for a pod.
    pub fn target(&self, uid: &str, name: &str) -> PathBuf {
        self.published(uid, name).join("mount")
    }
}

/// Makes a directory and those above it. Paths of drivers may contain links that an administrator made; no pod can write here.
pub(super) fn ensure_dir(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// Whether a driver's name can be part of a path: as CSI wants it, letters and digits with dashes and dots between.
pub fn is_driver_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && plain(bytes[0])
        && plain(bytes[bytes.len() - 1])
        && bytes.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let key = VolumeKey { driver: "d.example".into(), handle: "vol-1".into() };
        assert_eq!(key.unique(), "kubernetes.io/csi/d.example^vol-1");
        // sha256 of "vol-1d.examplenode1".
        let name = key.attachment("node1");
        assert_eq!((name.len(), &name[..4]), (68, "csi-"));
        assert_ne!(name, key.attachment("node2"));
        let paths = Paths::new(Path::new("/var/lib/kubelet"));
        let target = paths.target("u", "pv");
        assert_eq!(target, Path::new("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"));
        let staging = paths.staging_target(&key).display().to_string();
        assert!(staging.starts_with("/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/"), "{staging}");
        assert!(staging.ends_with("/globalmount"), "{staging}");
        let devices = Path::new("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(paths.device_staging("pv"), devices.join("staging/pv"));
        assert_eq!(paths.device_target("u", "pv"), devices.join("publish/pv/u"));
        let link = paths.device_link("u", "pv");
        assert_eq!(link, Path::new("/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/pv"));
    }

    #[test]
    fn names_of_drivers_are_no_paths() {
        for (name, want) in [
            ("hostpath.csi.k8s.io", true),
            ("A-1", true),
            ("", false),
            ("..", false),
            ("a/b", false),
            (".hidden", false),
            ("a.", false),
            ("a_b", false),
        ] {
            assert_eq!(is_driver_name(name), want, "{name}");
        }
        assert!(!is_driver_name(&"a".repeat(64)));
    }
}
