//! Device nodes of a container.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use coracle_proto::cri;
use serde::Serialize;
use serde_json::{Value, json};

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

/// One device node, in the runtime's form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Where it is made.
    pub path: String,
    /// `c` or `b`.
    #[serde(rename = "type")]
    pub kind: char,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Permission bits.
    pub file_mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `r`, `w`, `m`: what the container may do.
    #[serde(skip)]
    pub access: String,
}

impl Node {
    /// The rule that lets the container use it.
    pub fn rule(&self) -> Value {
        json!({ "allow": true, "type": self.kind, "major": self.major, "minor": self.minor, "access": self.access })
    }

    fn read(host: &Path, path: String, access: &str) -> io::Result<Option<Self>> {
        let meta = fs::metadata(host)?;
        let kind = match meta.file_type() {
            t if t.is_char_device() => 'c',
            t if t.is_block_device() => 'b',
            _ => return Ok(None),
        };
        Ok(Some(Self {
            path,
            kind,
            major: libc::major(meta.rdev()).into(),
            minor: libc::minor(meta.rdev()).into(),
            file_mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            access: access.to_owned(),
        }))
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
        nodes.extend(Node::read(host, path.to_owned(), access)?);
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
    fn finds_a_device_and_refuses_a_missing_one() {
        let device = |host: &str| cri::Device {
            container_path: "/dev/zilch".into(),
            host_path: host.into(),
            permissions: "r".into(),
        };
        let nodes = requested(&[device("/dev/null")]).unwrap();
        assert_eq!(nodes.len(), 1);
        assert_eq!((nodes[0].kind, nodes[0].major, nodes[0].minor), ('c', 1, 3));
        assert_eq!(nodes[0].path, "/dev/zilch");
        assert_eq!(nodes[0].rule()["access"], "r");
        assert!(requested(&[device("/dev/none-such")]).is_err());
    }
}
