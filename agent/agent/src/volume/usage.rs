//! How full the volumes of claims are, read once a minute: for `/stats/summary` and the series `kubelet_volume_stats_*`.

use coracle_cli::causes;
use coracle_proto::exposition::Page;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::csi::{CsiVolumes, Health, VolumeStats};
use crate::events::{Kind, Recorder};
use crate::pod::spec;

/// Between readings.
const PERIOD: Duration = Duration::from_secs(60);
/// Volumes that are read at the same time.
const AT_ONCE: usize = 8;
/// A server that is away must not keep the others.
const LIMIT: Duration = Duration::from_secs(25);

/// A volume of a pod that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its name in the pod.
    pub volume: String,
    /// Its claim.
    pub claim: Option<String>,
    /// The driver's volume: name of the PersistentVolume.
    pub driver: Option<String>,
    /// Where it is mounted, if it has no driver.
    pub path: PathBuf,
}

/// What was read of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its name in the pod.
    pub volume: String,
    /// Its claim.
    pub claim: Option<String>,
    /// When.
    pub at: Timestamp,
    /// How full it is.
    pub stats: VolumeStats,
    /// Its condition, if its driver knows.
    pub health: Option<Health>,
}

struct Entry {
    pod: Arc<Pod>,
    volumes: Vec<Measured>,
    readings: Vec<Reading>,
}

/// The volumes of all pods that are measured.
#[derive(Clone, Default)]
pub struct VolumeUsage(Arc<Mutex<BTreeMap<String, Entry>>>);

impl VolumeUsage {
    /// The volumes of a pod from now on.
    pub fn set(&self, pod: &Arc<Pod>, volumes: Vec<Measured>) {
        let mut all = self.0.lock();
        let old = all.remove(spec::uid(pod)).map(|entry| entry.readings).unwrap_or_default();
        if volumes.is_empty() {
            return;
        }
        let kept = |reading: &Reading| volumes.iter().any(|one| one.volume == reading.volume);
        let readings = old.into_iter().filter(kept).collect();
        all.insert(spec::uid(pod).to_owned(), Entry { pod: pod.clone(), volumes, readings });
    }

    /// A pod has ended.
    pub fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// What was read of a pod's volumes.
    pub fn of_pod(&self, uid: &str) -> Vec<Reading> {
        self.0.lock().get(uid).map(|entry| entry.readings.clone()).unwrap_or_default()
    }

    /// Reads for as long as the node runs.
    pub async fn run(self, csi: CsiVolumes, events: Recorder) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.read(&csi, &events).await;
        }
    }

    async fn read(&self, csi: &CsiVolumes, events: &Recorder) {
        let all: Vec<(Arc<Pod>, Measured)> = {
            let all = self.0.lock();
            let each = |entry: &Entry| {
                entry.volumes.iter().map(|one| (entry.pod.clone(), one.clone())).collect::<Vec<_>>()
            };
            all.values().flat_map(each).collect()
        };
        let readings = futures::stream::iter(all).map(|(pod, volume)| async move {
            let read = read(csi, &pod, &volume).await;
            (pod, volume, read)
        });
        let mut readings = std::pin::pin!(readings.buffer_unordered(AT_ONCE));
        while let Some((pod, volume, read)) = readings.next().await {
            let Some((stats, health)) = read else { continue };
            if let Some(health) = health.as_ref().filter(|health| health.is_abnormal) {
                let text = format!("Volume {}: {}", volume.volume, health.message);
                events.pod(&pod, Kind::Warning, "VolumeConditionAbnormal", text);
            }
            let (name, claim) = (volume.volume, volume.claim);
            self.note(spec::uid(&pod), Reading { volume: name, claim, at: Timestamp::now(), stats, health });
        }
    }

    fn note(&self, uid: &str, reading: Reading) {
        if let Some(entry) = self.0.lock().get_mut(uid) {
            entry.readings.retain(|old| old.volume != reading.volume);
            entry.readings.push(reading);
            entry.readings.sort_by(|a, b| a.volume.cmp(&b.volume));
        }
    }

    /// The series of the kubelet. A claim that several pods use is shown once.
    pub fn render(&self, out: &mut Page) {
        let mut claims: BTreeMap<(String, String), Reading> = BTreeMap::new();
        for entry in self.0.lock().values() {
            let namespace = spec::namespace(&entry.pod);
            for reading in &entry.readings {
                let Some(claim) = reading.claim.clone() else { continue };
                claims.entry((namespace.to_owned(), claim)).or_insert_with(|| reading.clone());
            }
        }
        type Value = fn(&Reading) -> Option<u64>;
        let families: [(&str, &str, Value); 7] = [
            ("capacity_bytes", "[ALPHA] Capacity in bytes of the volume", |r| r.stats.capacity),
            ("available_bytes", "[ALPHA] Number of available bytes in the volume", |r| r.stats.available),
            ("used_bytes", "[ALPHA] Number of used bytes in the volume", |r| r.stats.used),
            ("inodes", "[ALPHA] Maximum number of inodes in the volume", |r| r.stats.inodes),
            ("inodes_free", "[ALPHA] Number of free inodes in the volume", |r| r.stats.inodes_free),
            ("inodes_used", "[ALPHA] Number of used inodes in the volume", |r| r.stats.inodes_used),
            (
                "health_status_abnormal",
                "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
                |r| r.health.as_ref().map(|health| u64::from(health.is_abnormal)),
            ),
        ];
        for (name, help, value) in families {
            let name = format!("kubelet_volume_stats_{name}");
            let rows: Vec<_> = claims.iter().filter_map(|(of, r)| Some((of, value(r)?))).collect();
            if rows.is_empty() {
                continue;
            }
            out.family(&name, "gauge", help);
            for ((namespace, claim), value) in rows {
                out.value(&name, &[("namespace", namespace), ("persistentvolumeclaim", claim)], value);
            }
        }
    }
}

async fn read(csi: &CsiVolumes, pod: &Pod, volume: &Measured) -> Option<(VolumeStats, Option<Health>)> {
    let uid = spec::uid(pod);
    let Some(name) = &volume.driver else {
        let path = volume.path.clone();
        let read = tokio::task::spawn_blocking(move || of_file_system(&path));
        return Some((tokio::time::timeout(LIMIT, read).await.ok()?.ok()??, None));
    };
    match csi.stats(uid, name).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(uid, volume = volume.volume, error = %causes::chain(&error), "volume not measured");
            None
        }
    }
}

fn of_file_system(path: &Path) -> Option<VolumeStats> {
    let found = nix::sys::statvfs::statvfs(path).ok()?;
    let size = found.fragment_size();
    let bytes = |blocks: u64| Some(blocks.saturating_mul(size));
    Some(VolumeStats {
        capacity: bytes(found.blocks()),
        available: bytes(found.blocks_available()),
        used: bytes(found.blocks().saturating_sub(found.blocks_free())),
        inodes: Some(found.files()),
        inodes_free: Some(found.files_free()),
        inodes_used: Some(found.files().saturating_sub(found.files_free())),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_proto::exposition::Form;
    use serde_json::json;

    #[test]
    fn a_claim_is_shown_once_and_goes_with_its_pods() {
        let usage = VolumeUsage::default();
        let measured = |volume: &str| Measured {
            volume: volume.into(),
            claim: Some("data".into()),
            driver: Some("pv".into()),
            path: PathBuf::new(),
        };
        for uid in ["a", "b"] {
            let pod = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}});
            let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
            usage.set(&pod, vec![measured("v")]);
            usage.note(
                uid,
                Reading {
                    volume: "v".into(),
                    claim: Some("data".into()),
                    at: Timestamp::UNIX_EPOCH,
                    stats: VolumeStats { capacity: Some(10), used: Some(3), ..VolumeStats::default() },
                    health: Some(Health { is_abnormal: true, message: "bad".into() }),
                },
            );
            usage.set(&pod, vec![measured("v")]);
        }
        let text = || {
            let mut page = Page::new(Form::Prometheus);
            usage.render(&mut page);
            page.finish()
        };
        let labels = r#"{namespace="ns",persistentvolumeclaim="data"}"#;
        let shown = text();
        for (name, value) in [("capacity_bytes", 10), ("used_bytes", 3), ("health_status_abnormal", 1)] {
            let line = format!("kubelet_volume_stats_{name}{labels} {value}");
            assert_eq!(shown.lines().filter(|one| **one == line).count(), 1, "{line} in {shown}");
        }
        assert!(!shown.contains("inodes"), "{shown}");
        usage.remove("a");
        assert!(text().contains("capacity_bytes"));
        usage.remove("b");
        assert!(!text().contains("capacity_bytes"));
    }

    #[test]
    fn a_file_system_is_measured() {
        let temp = tempfile::tempdir().unwrap();
        let found = of_file_system(temp.path()).unwrap();
        assert!(found.capacity >= found.used && found.capacity > Some(0));
        assert_eq!(of_file_system(&temp.path().join("no")), None);
    }
}
