//! What the engine knows about sandboxes and containers, one JSON file each, written before each side effect.
//!
//! Not synced: a process that is killed loses nothing, and after a power cut nothing runs that a lost record could leak;
//! what such a record leaves on disk is found by its directory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use coracle_proto::cri;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A sandbox's place in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPhase {
    /// Being made; a restart takes it apart.
    #[default]
    Creating,
    /// Ready.
    Ready,
    /// Stopped, or its `pause` is gone.
    NotReady,
    /// Being removed; a restart goes on.
    Removing,
}

/// A sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxRecord {
    /// Id.
    pub id: String,
    /// As asked for.
    pub config: cri::PodSandboxConfig,
    /// Runtime handler asked for.
    pub handler: String,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// Place in its life.
    pub phase: SandboxPhase,
    /// `pause`; 0 before it runs.
    pub pid: i32,
    /// Start time of `pause`, to know it from another process with its pid.
    pub start_time: u64,
    /// Cgroup of `pause`, relative to the root of the hierarchy.
    pub cgroup: String,
    /// Joined the cluster network, or was about to: leaving it is due.
    pub attached: bool,
    /// Addresses.
    pub ips: Vec<String>,
}

/// A container's place in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerPhase {
    /// Being made; a restart takes it apart.
    #[default]
    Creating,
    /// Can be started.
    Created,
    /// The OCI runtime is at work.
    Starting,
    /// Runs.
    Running,
    /// Ended.
    Exited,
    /// Being removed; a restart goes on.
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
    /// As asked for; resources as last updated.
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
    /// Place in its life.
    pub phase: ContainerPhase,
    /// Its first process; 0 before it runs.
    pub pid: i32,
    /// Start time of that process.
    pub start_time: u64,
    /// Valid once exited.
    pub exit_code: i32,
    /// CamelCase, for machines.
    pub reason: String,
    /// For people.
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
    /// The OCI runtime that started it, and alone can read what it noted; empty before.
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

    /// Removes a record; one that is not there is fine.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Every record by id; one that cannot be read is left out, logged, and its file removed.
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
                    tracing::error!(path = %path.display(), %error, "unreadable record, dropped");
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
