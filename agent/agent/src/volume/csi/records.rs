//! What drivers were asked to mount, on disk: in the files of the kubelet, with fields of our own.
//!
//! A record is written before its call and changed after the answer. What was mounted in another boot is not mounted any more.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::names::{Paths, VolumeKey, ensure_dir};

const FILE: &str = "vol_data.json";
/// Records are short; anything longer is not one.
const MAX_RECORD: u64 = 64 << 10;

/// How far a driver has got, as far as the agent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It has not been called, or has undone it.
    Planned,
    /// It was called, and its answer is not known.
    Called,
    /// It succeeded.
    Done,
}

/// A volume that is mounted, or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Name of the driver.
    pub driver_name: String,
    /// The driver's name of the volume.
    pub volume_handle: String,
    /// Name of the PersistentVolume, or of the pod's volume if that is ephemeral.
    #[serde(rename = "specVolID")]
    pub name: String,
    /// `Persistent` or `Ephemeral`.
    pub volume_lifecycle_mode: String,
    /// Name of the node.
    pub node_name: String,
    /// Name of the VolumeAttachment, if it is attached.
    #[serde(rename = "attachmentID", default, skip_serializing_if = "String::is_empty")]
    pub attachment: String,
    /// Whether it is staged before it is published.
    pub is_staged: bool,
    /// Whether it is a block device.
    #[serde(default)]
    pub is_block: bool,
    /// How far the driver has got.
    pub state: State,
    /// In which boot.
    #[serde(rename = "bootID")]
    pub boot: String,
}

impl Record {
    /// The volume.
    pub fn key(&self) -> VolumeKey {
        VolumeKey { driver: self.driver_name.clone(), handle: self.volume_handle.clone() }
    }
}

/// A record that cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("recording a volume in {}", .path.display())]
pub struct RecordError {
    /// Its file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

#[derive(Default)]
struct Table {
    staged: BTreeMap<VolumeKey, Record>,
    /// By uid of the pod and name of the volume.
    published: BTreeMap<(String, String), Record>,
}

/// All records of this node.
pub struct Records {
    paths: Paths,
    boot: String,
    table: Mutex<Table>,
}

impl Records {
    /// Reads what an agent before this one has recorded. Files of others are left alone.
    pub fn load(paths: Paths, boot: String) -> Self {
        let mut table = Table::default();
        for driver in list(&paths.all_staged()) {
            for dir in list(&driver) {
                if let Some(record) = read(&dir).filter(|record| paths.staged(&record.key()) == dir) {
                    table.staged.insert(record.key(), record);
                }
            }
        }
        for pod in list(&paths.pods()) {
            let Some(uid) = pod.file_name().and_then(|uid| uid.to_str()) else { continue };
            for dir in list(&paths.of_pod(uid)) {
                if let Some(record) = read(&dir).filter(|record| paths.published(uid, &record.name) == dir) {
                    table.published.insert((uid.to_owned(), record.name.clone()), record);
                }
            }
        }
        Self { paths, boot, table: Mutex::new(table) }
    }

    /// The state of a volume of the node.
    pub fn staged(&self, key: &VolumeKey) -> Option<State> {
        self.table.lock().staged.get(key).map(|record| self.state_now(record))
    }

    /// The state of a volume of a pod.
    pub fn published(&self, uid: &str, name: &str) -> Option<State> {
        let table = self.table.lock();
        table.published.get(&(uid.to_owned(), name.to_owned())).map(|record| self.state_now(record))
    }

    /// The record of a volume of a pod.
    pub fn of_volume(&self, uid: &str, name: &str) -> Option<Record> {
        self.table.lock().published.get(&(uid.to_owned(), name.to_owned())).cloned()
    }

    fn state_now(&self, record: &Record) -> State {
        if record.boot == self.boot || record.state == State::Planned { record.state } else { State::Called }
    }

    /// Volumes of a pod.
    pub fn of_pod(&self, uid: &str) -> Vec<Record> {
        let table = self.table.lock();
        table.published.iter().filter(|((of, _), _)| of == uid).map(|(_, record)| record.clone()).collect()
    }

    /// All volumes, with the uids of their pods.
    pub fn all(&self) -> Vec<(String, Record)> {
        let table = self.table.lock();
        table.published.iter().map(|((uid, _), record)| (uid.clone(), record.clone())).collect()
    }

    /// Whether pods other than this one use a volume.
    pub fn has_other_users(&self, key: &VolumeKey, uid: &str) -> bool {
        let table = self.table.lock();
        table.published.iter().any(|((of, _), record)| of != uid && record.key() == *key)
    }

    /// Whether a volume is, or may be, mounted for pods other than this one.
    pub fn is_mounted_elsewhere(&self, key: &VolumeKey, uid: &str) -> bool {
        let table = self.table.lock();
        table.published.iter().any(|((of, _), record)| {
            of != uid && record.key() == *key && self.state_now(record) != State::Planned
        })
    }

    /// Records the state of a volume of the node.
    pub fn note_staged(&self, record: &Record, state: State) -> Result<(), RecordError> {
        let record = Record { state, boot: self.boot.clone(), ..record.clone() };
        write(&self.paths.staged(&record.key()), &record)?;
        self.table.lock().staged.insert(record.key(), record);
        Ok(())
    }

    /// Records the state of a volume of a pod.
    pub fn note_published(&self, uid: &str, record: &Record, state: State) -> Result<(), RecordError> {
        let record = Record { state, boot: self.boot.clone(), ..record.clone() };
        write(&self.paths.published(uid, &record.name), &record)?;
        self.table.lock().published.insert((uid.to_owned(), record.name.clone()), record);
        Ok(())
    }

    /// Forgets a volume of the node. Its directory must be empty but for the record.
    pub fn forget_staged(&self, key: &VolumeKey) -> Result<(), RecordError> {
        let dir = self.paths.staged(key);
        remove(&dir, 1)?;
        self.table.lock().staged.remove(key);
        Ok(())
    }

    /// Forgets a volume of a pod. Its directory must be empty but for the record.
    pub fn forget_published(&self, uid: &str, name: &str) -> Result<(), RecordError> {
        let dir = self.paths.published(uid, name);
        remove(&dir, 3)?;
        self.table.lock().published.remove(&(uid.to_owned(), name.to_owned()));
        Ok(())
    }
}

fn list(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn read(dir: &Path) -> Option<Record> {
    let path = dir.join(FILE);
    let mut text = Vec::new();
    std::fs::File::open(&path).ok()?.take(MAX_RECORD).read_to_end(&mut text).ok()?;
    match serde_json::from_slice(&text) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "not a record of this agent, left alone");
            None
        }
    }
}

/// Replaces a record; whole on disk when this returns.
fn write(dir: &Path, record: &Record) -> Result<(), RecordError> {
    let path = dir.join(FILE);
    let replace = || -> io::Result<()> {
        ensure_dir(dir)?;
        let fresh = dir.join(".vol_data.json.new");
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        std::fs::File::open(dir)?.sync_all()
    };
    replace().map_err(|source| RecordError { path: path.clone(), source })
}

/// Removes a record, its directory, and directories above it that are empty then. Never more than that: what a driver has left
/// mounted is not deleted.
fn remove(dir: &Path, above: usize) -> Result<(), RecordError> {
    let path = dir.join(FILE);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let _ = std::fs::remove_file(dir.join(".vol_data.json.new"));
    let removed = gone(std::fs::remove_file(&path)).and_then(|()| gone(std::fs::remove_dir(dir)));
    removed.map_err(|source| RecordError { path, source })?;
    for dir in dir.ancestors().skip(1).take(above) {
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(handle: &str) -> Record {
        Record {
            driver_name: "d".into(),
            volume_handle: handle.into(),
            name: format!("pv-{handle}"),
            volume_lifecycle_mode: "Persistent".into(),
            node_name: "n".into(),
            attachment: String::new(),
            is_staged: true,
            is_block: false,
            state: State::Planned,
            boot: String::new(),
        }
    }

    fn load(dir: &Path, boot: &str) -> Records {
        Records::load(Paths::new(dir), boot.to_owned())
    }

    #[test]
    fn an_agent_that_starts_again_knows_what_is_mounted() {
        let temp = tempfile::tempdir().unwrap();
        let (records, one) = (load(temp.path(), "1"), record("a"));
        records.note_published("u", &one, State::Planned).unwrap();
        records.note_staged(&one, State::Done).unwrap();
        assert!(!records.is_mounted_elsewhere(&one.key(), "v"), "it is only planned");
        let again = load(temp.path(), "1");
        assert_eq!(again.staged(&one.key()), Some(State::Done));
        assert_eq!(again.published("u", "pv-a"), Some(State::Planned));
        again.note_published("u", &one, State::Done).unwrap();
        assert!(again.has_other_users(&one.key(), "v") && !again.has_other_users(&one.key(), "u"));
        assert!(again.is_mounted_elsewhere(&one.key(), "v") && !again.is_mounted_elsewhere(&one.key(), "u"));
        // Nothing stays mounted over a reboot, but the driver may have state of its own.
        let after = load(temp.path(), "2");
        assert_eq!(after.staged(&one.key()), Some(State::Called));
        assert_eq!(after.published("u", "pv-a"), Some(State::Called));
        after.forget_published("u", "pv-a").unwrap();
        after.forget_staged(&one.key()).unwrap();
        assert_eq!(load(temp.path(), "2").all(), []);
        assert!(!temp.path().join("pods/u").exists());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        // A kubelet's record, half a record, and a record in another volume's directory.
        let whole = serde_json::to_string(&record("a")).unwrap();
        for (name, text) in [
            ("k", r#"{"driverName":"d","volumeHandle":"x","specVolID":"k"}"#),
            ("h", &whole[..20]),
            ("o", &whole),
        ] {
            ensure_dir(&paths.published("u", name)).unwrap();
            std::fs::write(paths.published("u", name).join(FILE), text).unwrap();
        }
        assert_eq!(load(temp.path(), "1").all(), []);
    }

    #[test]
    fn data_that_is_still_there_is_not_deleted() {
        let temp = tempfile::tempdir().unwrap();
        let (records, one) = (load(temp.path(), "1"), record("a"));
        records.note_published("u", &one, State::Done).unwrap();
        let data = Paths::new(temp.path()).target("u", "pv-a").join("precious");
        std::fs::create_dir_all(&data).unwrap();
        assert!(records.forget_published("u", "pv-a").is_err());
        assert!(data.exists());
        assert_eq!(records.of_pod("u").len(), 1, "it is tried again");
    }
}
