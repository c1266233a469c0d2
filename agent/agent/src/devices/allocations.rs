//! The devices that pods have, on disk: in the file of the kubelet, without its checksum.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_devices::v1beta1::ContainerAllocateResponse;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file that is longer was not written by an agent.
const MAX_FILE: u64 = 64 << 20;
/// Stands for no NUMA node.
const NO_NUMA_NODE: i64 = -1;

/// Whose devices: a container's, of one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Uid of the pod.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Extended resource.
    pub resource: String,
}

/// Devices of a container, and what it needs to use them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Ids, with the NUMA nodes that they are near to.
    pub devices: BTreeMap<String, Vec<i64>>,
    /// What the plugin answered.
    pub response: ContainerAllocateResponse,
}

/// The file of allocations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It cannot be read.
    #[error("reading the allocated devices from {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not what an agent writes.
    #[error("{} does not list the allocated devices: {reason}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It cannot be written.
    #[error("writing the allocated devices to {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    #[serde(default, deserialize_with = "null_is_empty")]
    pod_device_entries: Vec<Entry>,
    /// Ids by resource; of a resource without devices `null`.
    #[serde(default, deserialize_with = "null_is_empty")]
    registered_devices: BTreeMap<String, Option<Vec<String>>>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    uid: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// Ids by NUMA node.
    #[serde(rename = "DeviceIDs", default, deserialize_with = "null_is_empty")]
    ids: BTreeMap<i64, Vec<String>>,
    /// In base64.
    #[serde(rename = "AllocResp")]
    response: String,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// All allocations, and the resources that plugins had registered.
#[derive(Debug, Default, PartialEq)]
pub struct Allocations {
    /// By container and resource.
    pub by_container: BTreeMap<Key, Allocation>,
    /// Resources of plugins.
    pub registered: BTreeSet<String>,
}

impl Allocations {
    /// Reads the file; without one there are no allocations.
    pub fn load(path: &Path) -> Result<Self, CheckpointError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
        };
        let bytes = match read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(CheckpointError::Read { path: path.to_owned(), source }),
        };
        let wrong = |reason: String| CheckpointError::Content { path: path.to_owned(), reason };
        let file: File = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let mut by_container = BTreeMap::new();
        for entry in file.data.pod_device_entries {
            let of = || format!("AllocResp of pod {}, container {:?}", entry.uid, entry.container);
            let bytes =
                BASE64_STANDARD.decode(&entry.response).map_err(|e| wrong(format!("{}: {e}", of())))?;
            let response = ContainerAllocateResponse::decode(&*bytes);
            let response = response.map_err(|e| wrong(format!("{}: {e}", of())))?;
            let mut devices: BTreeMap<String, Vec<i64>> = BTreeMap::new();
            for (node, ids) in entry.ids {
                for id in ids {
                    devices.entry(id).or_default().extend((node != NO_NUMA_NODE).then_some(node));
                }
            }
            let Entry { uid, container, resource, .. } = entry;
            by_container.insert(Key { uid, container, resource }, Allocation { devices, response });
        }
        Ok(Self { by_container, registered: file.data.registered_devices.into_keys().collect() })
    }

    /// Replaces the file. It is on disk when this returns.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        let entry = |(key, allocation): (&Key, &Allocation)| {
            let mut ids: BTreeMap<i64, Vec<String>> = BTreeMap::new();
            for (id, numa) in &allocation.devices {
                let nodes: &[i64] = if numa.is_empty() { &[NO_NUMA_NODE] } else { numa };
                nodes.iter().for_each(|node| ids.entry(*node).or_default().push(id.clone()));
            }
            Entry {
                uid: key.uid.clone(),
                container: key.container.clone(),
                resource: key.resource.clone(),
                ids,
                response: BASE64_STANDARD.encode(allocation.response.encode_to_vec()),
            }
        };
        let file = File {
            data: Data {
                pod_device_entries: self.by_container.iter().map(entry).collect(),
                registered_devices: self.registered.iter().map(|name| (name.clone(), Some(vec![]))).collect(),
            },
        };
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(&file)?;
            let new = path.with_extension("new");
            let mut out = std::fs::File::create(&new)?;
            out.write_all(&text)?;
            out.sync_all()?;
            std::fs::rename(&new, path)?;
            // The name is on disk when the directory is.
            path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
        };
        write().map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
    }

    /// Ids of the devices of a resource that pods have.
    pub fn used(&self, resource: &str) -> impl Iterator<Item = &String> {
        let of = self.by_container.iter().filter(move |(key, _)| key.resource == resource);
        of.flat_map(|(_, allocation)| allocation.devices.keys())
    }

    /// Whether pods have devices of a resource.
    pub fn has(&self, resource: &str) -> bool {
        self.by_container.keys().any(|key| key.resource == resource)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(uid: &str) -> Key {
        Key { uid: uid.into(), container: "c".into(), resource: "vendor.example/gpu".into() }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        assert_eq!(Allocations::load(&path).unwrap(), Allocations::default());
        let response = ContainerAllocateResponse {
            envs: [("A".to_owned(), "b".to_owned())].into(),
            ..ContainerAllocateResponse::default()
        };
        let devices = [("x".to_owned(), vec![]), ("y".to_owned(), vec![0, 1])].into();
        let mut all = Allocations::default();
        all.by_container.insert(key("u"), Allocation { devices, response });
        all.registered.insert("vendor.example/gpu".into());
        all.save(&path).unwrap();
        assert_eq!(Allocations::load(&path).unwrap(), all);
        assert_eq!(all.used("vendor.example/gpu").collect::<Vec<_>>(), ["x", "y"]);
        assert!(all.has("vendor.example/gpu") && !all.has("vendor.example/nic"));
    }

    #[test]
    fn a_file_of_a_kubelet_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let text = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"vendor.example/gpu",
            "DeviceIDs":{"-1":["x"],"1":["y"]},"AllocResp":"CgYKAUESAWI="}],
            "RegisteredDevices":{"vendor.example/gpu":["x","y","z"],"vendor.example/nic":null}},"Checksum":77}"#;
        std::fs::write(&path, text).unwrap();
        let found = Allocations::load(&path).unwrap();
        let allocation = &found.by_container[&key("u")];
        assert_eq!(allocation.devices, [("x".to_owned(), vec![]), ("y".to_owned(), vec![1])].into());
        assert_eq!(allocation.response.envs["A"], "b");
        assert_eq!(found.registered.len(), 2);
        std::fs::write(&path, r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}"#)
            .unwrap();
        assert_eq!(Allocations::load(&path).unwrap(), Allocations::default());
    }

    #[test]
    fn a_damaged_file_is_named_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        for text in [
            "",
            "{",
            "{}",
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","AllocResp":"!"}]}}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Allocations::load(&path).unwrap_err();
            assert!(error.to_string().contains("checkpoint"), "{error}");
        }
    }
}
