//! Attachments on disk: `<dir>/results/<network>-<container>-<ifname>`, in libcni's format, with the configuration, arguments
//! and result that DEL needs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Error, Result};

const KIND: &str = "cniCacheV1";

/// One cached attachment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Format marker.
    pub kind: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// The network list, as base64 of its JSON.
    pub config: String,
    /// `CNI_IFNAME`.
    pub if_name: String,
    /// Name of the network.
    pub network_name: String,
    /// `CNI_NETNS` of the ADD (newer libcni writes it too).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub netns: String,
    /// `CNI_ARGS` as pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cni_args: Vec<(String, String)>,
    /// What the runtime offered to capabilities.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub capability_args: Map<String, Value>,
    /// The chain's result; absent while ADD is under way.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
}

impl Entry {
    /// An entry in the current format, without a result yet.
    pub fn new(container_id: &str, if_name: &str, network_name: &str, list: &Value) -> Self {
        Entry {
            kind: KIND.into(),
            container_id: container_id.into(),
            config: BASE64_STANDARD.encode(list.to_string()),
            if_name: if_name.into(),
            network_name: network_name.into(),
            netns: String::new(),
            cni_args: Vec::new(),
            capability_args: Map::new(),
            result: Value::Null,
        }
    }

    /// The network list it was attached with.
    pub fn list(&self) -> Option<Value> {
        serde_json::from_slice(&BASE64_STANDARD.decode(&self.config).ok()?).ok()
    }
}

/// The directory of cached attachments.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Uses `<dir>/results`, created on the first write.
    pub fn new(dir: &Path) -> Self {
        Cache { dir: dir.join("results") }
    }

    fn path(&self, network: &str, container: &str, ifname: &str) -> PathBuf {
        self.dir.join(format!("{network}-{container}-{ifname}"))
    }

    /// Stores an entry; readers see the old or the new one, never half of it.
    pub fn put(&self, entry: &Entry) -> Result<()> {
        let path = self.path(&entry.network_name, &entry.container_id, &entry.if_name);
        let failed = |source| Error::Io { action: "writing", path: path.clone(), source };
        let temporary = self.dir.join(format!(".{}-{}.tmp", entry.container_id, entry.if_name));
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let bytes = serde_json::to_vec(entry).map_err(|e| failed(e.into()))?;
        fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path)).map_err(failed)
    }

    /// Removes an entry; succeeds if it does not exist.
    pub fn remove(&self, entry: &Entry) -> Result<()> {
        let path = self.path(&entry.network_name, &entry.container_id, &entry.if_name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::Io { action: "removing", path, source: e })
            }
            _ => Ok(()),
        }
    }

    /// Removes temporary files of interrupted writes. Must not run concurrently with writes.
    pub fn sweep(&self) {
        for file in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = file.file_name();
            if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp")) {
                let _ = fs::remove_file(file.path());
            }
        }
    }

    /// The attachments of one container, or of all.
    ///
    /// Files that are not (or no longer) readable as entries are skipped: other tools share the directory.
    pub fn entries(&self, container: Option<&str>) -> Result<Vec<Entry>> {
        let listing = match fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::Io { action: "listing", path: self.dir.clone(), source }),
        };
        let mut found = Vec::new();
        for file in listing.flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with('.') || container.is_some_and(|id| !name.contains(id)) {
                continue;
            }
            let parsed = fs::read(file.path()).ok().and_then(|b| serde_json::from_slice::<Entry>(&b).ok());
            if let Some(entry) = parsed
                && entry.kind == KIND
                && container.is_none_or(|id| id == entry.container_id)
            {
                found.push(entry);
            }
        }
        Ok(found)
    }
}
