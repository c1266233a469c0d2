//! Device nodes of a container.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use coracle_proto::cri;
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

/// Why a container cannot have its devices.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The path of a device does not lead anywhere.
    #[error("device {path:?}")]
    Path {
        /// On the host.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A device, or a directory of them, cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// One device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What is made in the container.
    pub device: LinuxDevice,
    /// `r`, `w`, `m`: what the container may do.
    pub access: String,
}

impl Node {
    /// The rule that lets the container use it.
    pub fn rule(&self) -> LinuxDeviceCgroup {
        let mut rule = LinuxDeviceCgroup::from(&self.device);
        rule.set_access(Some(self.access.clone()));
        rule
    }

    fn read(host: &Path, path: &str, access: &str) -> io::Result<Option<Self>> {
        let meta = fs::metadata(host)?;
        let kind = match meta.file_type() {
            t if t.is_char_device() => LinuxDeviceType::C,
            t if t.is_block_device() => LinuxDeviceType::B,
            _ => return Ok(None),
        };
        let mut device = LinuxDevice::default();
        device
            .set_path(path.into())
            .set_typ(kind)
            .set_major(libc::major(meta.rdev()).into())
            .set_minor(libc::minor(meta.rdev()).into())
            .set_file_mode(Some(meta.mode() & 0o7777))
            .set_uid(Some(meta.uid()))
            .set_gid(Some(meta.gid()));
        Ok(Some(Self { device, access: access.to_owned() }))
    }
}

/// The nodes a pod asks for; a directory stands for the devices in it.
pub fn requested(devices: &[cri::Device]) -> Result<Vec<Node>, DeviceError> {
    let mut nodes = Vec::new();
    for device in devices {
        let host = fs::canonicalize(&device.host_path)
            .map_err(|source| DeviceError::Path { path: device.host_path.clone(), source })?;
        let access = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
        collect(&host, &device.container_path, access, &mut nodes)?;
    }
    Ok(nodes)
}

/// The nodes of a container: what its pod asks for, and every device of the host if it is privileged.
pub fn of_container(devices: &[cri::Device], is_privileged: bool) -> Result<Vec<Node>, DeviceError> {
    let mut nodes = requested(devices)?;
    if is_privileged {
        let own: HashSet<PathBuf> = nodes.iter().map(|node| node.device.path().clone()).collect();
        nodes.extend(all()?.into_iter().filter(|node| !own.contains(node.device.path())));
    }
    Ok(nodes)
}

/// Every device of the host, for privileged containers.
pub fn all() -> Result<Vec<Node>, DeviceError> {
    let mut nodes = Vec::new();
    collect(Path::new("/dev"), "/dev", "rwm", &mut nodes)?;
    Ok(nodes)
}

fn collect(host: &Path, path: &str, access: &str, nodes: &mut Vec<Node>) -> io::Result<()> {
    // What has its own mount in the container is not a device of the host.
    const SKIP: [&str; 6] = ["/dev/pts", "/dev/shm", "/dev/fd", "/dev/mqueue", "/dev/console", "/dev/ptmx"];
    if SKIP.contains(&path) {
        return Ok(());
    }
    if !host.is_dir() {
        nodes.extend(Node::read(host, path, access)?);
        return Ok(());
    }
    for entry in fs::read_dir(host)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links in /dev lead to devices that are listed by their own names, or nowhere.
        if entry.file_type().is_ok_and(|t| t.is_symlink()) {
            continue;
        }
        match collect(&entry.path(), &format!("{path}/{name}"), access, nodes) {
            // Devices come and go.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_privileged_container_has_its_own_devices_too() {
        let own = |path: &str| cri::Device {
            container_path: path.into(),
            host_path: "/dev/null".into(),
            permissions: "r".into(),
        };
        let nodes = of_container(&[own("/dev/xvda"), own("/dev/zero")], true).unwrap();
        let of = |path: &str| nodes.iter().filter(|node| node.device.path() == Path::new(path)).count();
        assert_eq!((of("/dev/xvda"), of("/dev/zero"), of("/dev/null")), (1, 1, 1));
        assert_eq!(of_container(&[own("/dev/xvda")], false).unwrap().len(), 1);
    }

    #[test]
    fn finds_a_device_and_refuses_a_missing_one() {
        let asked = |host: &str| cri::Device {
            container_path: "/dev/zilch".into(),
            host_path: host.into(),
            permissions: "r".into(),
        };
        let nodes = requested(&[asked("/dev/null")]).unwrap();
        assert_eq!(nodes.len(), 1);
        let device = &nodes[0].device;
        assert_eq!((device.typ(), device.major(), device.minor()), (LinuxDeviceType::C, 1, 3));
        assert_eq!(device.path(), Path::new("/dev/zilch"));
        let rule = serde_json::json!({ "allow": true, "type": "c", "major": 1, "minor": 3, "access": "r" });
        assert_eq!(serde_json::to_value(nodes[0].rule()).unwrap(), rule);
        assert!(requested(&[asked("/dev/none-such")]).is_err());
    }
}
