//! What drivers were asked to prepare, on disk.
//!
//! A record is written before its call and changed after the answer.

use coracle_cli::causes;
use coracle_devices::dra::Device;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file that is longer was not written by an agent.
const MAX_FILE: u64 = 64 << 20;

/// A device that a driver has prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedDevice {
    /// Requests of the claim that it satisfies; empty for all.
    pub requests: Vec<String>,
    /// Pool of the driver.
    pub pool: String,
    /// Name in the pool.
    pub device: String,
    /// Qualified names of CDI devices.
    pub cdi_devices: Vec<String>,
    /// Share of a device that several claims use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

impl From<Device> for PreparedDevice {
    fn from(device: Device) -> Self {
        Self {
            requests: device.request_names,
            pool: device.pool_name,
            device: device.device_name,
            cdi_devices: device.cdi_device_ids,
            share: device.share_id,
        }
    }
}

/// How far a driver has got with a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It was called, and its answer is not known.
    Called,
    /// It has prepared these.
    Prepared(Vec<PreparedDevice>),
}

/// A claim that is prepared, or about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Uids of the pods that use it.
    pub pods: BTreeSet<String>,
    /// By name of the driver.
    pub drivers: BTreeMap<String, State>,
    /// All drivers of the claim have prepared it.
    #[serde(default)]
    pub is_complete: bool,
}

/// The file of records cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("prepared resource claims in {}", .path.display())]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// All records of this node, by uid of the claim.
pub struct Records {
    path: PathBuf,
    table: Mutex<BTreeMap<String, Record>>,
    /// Why nothing can be prepared: what is prepared is not known.
    damaged: Option<String>,
}

impl Records {
    /// Reads what an agent before this one has recorded.
    pub fn load(path: &Path) -> Self {
        let (table, damaged) = match read(path) {
            Ok(table) => (table, None),
            Err(error) => {
                tracing::error!(path = %path.display(), error = %causes::chain(&error), "no resource claims are prepared until the file is repaired or removed and the agent restarted");
                (BTreeMap::new(), Some(error.to_string()))
            }
        };
        Self { path: path.to_owned(), table: Mutex::new(table), damaged }
    }

    /// The record of a claim.
    pub fn get(&self, uid: &str) -> Option<Record> {
        self.table.lock().get(uid).cloned()
    }

    /// Claims of a pod: uids and records.
    pub fn of_pod(&self, pod: &str) -> Vec<(String, Record)> {
        let table = self.table.lock();
        table
            .iter()
            .filter(|(_, record)| record.pods.contains(pod))
            .map(|(uid, r)| (uid.clone(), r.clone()))
            .collect()
    }

    /// Changes the record of a claim; one without pods and drivers is removed. It is on disk when this returns.
    pub fn change(&self, uid: &str, change: impl FnOnce(&mut Record)) -> Result<(), RecordError> {
        let failed = |source| RecordError { path: self.path.clone(), source };
        if let Some(damaged) = &self.damaged {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, damaged.clone())));
        }
        let mut table = self.table.lock();
        let before = table.get(uid).cloned();
        let mut record = before.clone().unwrap_or_default();
        change(&mut record);
        if record.pods.is_empty() && record.drivers.is_empty() {
            table.remove(uid);
        } else {
            table.insert(uid.to_owned(), record);
        }
        if let Err(source) = write(&self.path, &table) {
            match before {
                Some(before) => drop(table.insert(uid.to_owned(), before)),
                None => drop(table.remove(uid)),
            }
            return Err(failed(source));
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<BTreeMap<String, Record>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE + 1).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

fn write(path: &Path, table: &BTreeMap<String, Record>) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(&serde_json::to_vec(table)?)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_survive_and_those_of_nobody_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let records = Records::load(&path);
        let device = PreparedDevice { device: "gpu-0".into(), ..PreparedDevice::default() };
        records
            .change("u", |record| {
                record.name = "claim".into();
                record.pods.insert("p".into());
                record.drivers.insert("d".into(), State::Called);
                record.drivers.insert("e".into(), State::Prepared(vec![device]));
            })
            .unwrap();
        let again = Records::load(&path);
        assert_eq!(again.get("u"), records.get("u"));
        assert_eq!(again.of_pod("p").len(), 1);
        assert!(again.of_pod("q").is_empty());
        again
            .change("u", |record| {
                record.pods.clear();
                record.drivers.clear();
            })
            .unwrap();
        assert_eq!(Records::load(&path).get("u"), None);
    }

    #[test]
    fn a_damaged_file_is_named_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::fs::write(&path, "[").unwrap();
        let change = |record: &mut Record| {
            record.pods.insert("p".into());
        };
        let error = Records::load(&path).change("u", change).unwrap_err();
        assert!(error.to_string().contains("state"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[");
    }
}
