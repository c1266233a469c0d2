//! Records of sandboxes and containers: one JSON file each, written before each side effect.
//!
//! Not synced: a killed process loses nothing, and after a power failure nothing runs that a lost record could leak.
//! Files without a record are found by their directory.

use coracle_cli::causes;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use coracle_proto::cri;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Lifecycle phase of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    /// Being created; removed after a restart of the engine.
    #[default]
    Creating,
    /// Ready.
    Ready,
    /// Stopped, or `pause` has exited.
    NotReady,
    /// Being removed; continued after a restart of the engine.
    Removing,
}

/// A sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxRecord {
    /// Id.
    pub id: String,
    /// The configuration of the request.
    pub config: cri::PodSandboxConfig,
    /// Requested runtime handler.
    pub handler: String,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// Lifecycle phase.
    pub phase: SandboxPhase,
    /// `pause`; 0 before it runs.
    pub pid: i32,
    /// Start time of `pause`; detects a reused pid.
    pub start_time: u64,
    /// Cgroup of `pause`, relative to the root of the hierarchy.
    pub cgroup: String,
    /// Attached to the cluster network, or about to be: must be detached on removal.
    pub attached: bool,
    /// Addresses.
    pub ips: Vec<String>,
}

/// Lifecycle phase of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerPhase {
    /// Being created; removed after a restart of the engine.
    #[default]
    Creating,
    /// Created, not started.
    Created,
    /// Being started by the OCI runtime.
    Starting,
    /// Running.
    Running,
    /// Exited.
    Exited,
    /// Being removed; continued after a restart of the engine.
    Removing,
}

/// A container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerRecord {
    /// Id.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
    /// The configuration of the request, with current resources.
    pub config: cri::ContainerConfig,
    /// Image id.
    pub image_id: String,
    /// Images mounted into it.
    pub volume_images: Vec<String>,
    /// Image by digest, where it has one.
    pub image_ref: String,
    /// Nanoseconds since 1970, as all times here.
    pub created_at: i64,
    /// 0 before.
    pub started_at: i64,
    /// 0 before.
    pub finished_at: i64,
    /// Lifecycle phase.
    pub phase: ContainerPhase,
    /// It has exited, and is reported as running until its processes and hooks have ended: continued after a restart of the
    /// engine. False once the exit is reported.
    pub releasing: bool,
    /// Its first process; 0 before it runs.
    pub pid: i32,
    /// Start time of that process.
    pub start_time: u64,
    /// Valid once exited.
    pub exit_code: i32,
    /// Reason of the exit in CamelCase.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Log file; empty for none.
    pub log: PathBuf,
    /// Signal number that asks it to stop.
    pub stop_signal: i32,
    /// Cgroup, relative to the root of the hierarchy.
    pub cgroup: String,
    /// User it runs as.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplemental groups.
    pub groups: Vec<u32>,
    /// Path of the OCI runtime that started it, whose state format only it can read; empty before the start.
    pub runtime: PathBuf,
}

/// A directory of records.
#[derive(Debug)]
pub struct Records {
    dir: PathBuf,
}

impl Records {
    /// In an existing directory.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    /// Writes a record; readers see the old or the new one.
    pub fn put<T: Serialize>(&self, id: &str, record: &T) -> io::Result<()> {
        let fresh = self.dir.join(format!(".{id}.new"));
        fs::write(&fresh, serde_json::to_vec(record)?)?;
        fs::rename(fresh, self.path(id))
    }

    /// Removes a record; succeeds if it does not exist.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// All records by id. An unreadable record is logged and deleted.
    pub fn load<T: DeserializeOwned>(&self) -> io::Result<HashMap<String, T>> {
        let mut records = HashMap::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Some(id) = id_of(&path) else {
                if path.extension().is_some_and(|e| e == "new") {
                    fs::remove_file(&path)?;
                }
                continue;
            };
            match serde_json::from_slice(&fs::read(&path)?) {
                Ok(record) => drop(records.insert(id, record)),
                Err(error) => {
                    tracing::error!(path = %path.display(), error = %causes::chain(&error), "unreadable record deleted");
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(records)
    }
}

fn id_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
    (!name.starts_with('.')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_come_back_and_broken_ones_do_not_stop_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        let mut record = ContainerRecord { id: "a".into(), pid: 7, ..Default::default() };
        record.config.envs.push(cri::KeyValue { key: "K".into(), value: "V".into() });
        record.config.linux = Some(cri::LinuxContainerConfig::default());
        records.put("a", &record).unwrap();
        fs::write(dir.path().join("b.json"), "{half").unwrap();
        fs::write(dir.path().join(".c.new"), "{half").unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        let loaded: HashMap<String, ContainerRecord> = records.load().unwrap();
        assert_eq!(loaded.len(), 1);
        assert_eq!(loaded["a"].pid, 7);
        assert_eq!(loaded["a"].config, record.config);
        assert!(!dir.path().join("b.json").exists() && !dir.path().join(".c.new").exists());
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert!(records.load::<ContainerRecord>().unwrap().is_empty());
    }
}
