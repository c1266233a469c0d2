//! How full volumes of drivers are, and whether something is wrong with them.

use coracle_csi::v1::NodeGetVolumeStatsRequest;
use coracle_csi::v1::volume_usage::Unit;

use super::error::CsiError;
use super::mount::{CsiVolumes, no_driver};

/// How full a volume is. What its driver does not say is unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of the volume.
    pub capacity: Option<u64>,
    /// Bytes that can be written.
    pub available: Option<u64>,
    /// Bytes that are used.
    pub used: Option<u64>,
    /// Inodes of the volume.
    pub inodes: Option<u64>,
    /// Inodes that are free.
    pub inodes_free: Option<u64>,
    /// Inodes that are used.
    pub inodes_used: Option<u64>,
}

/// What a driver says about the condition of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Something is wrong.
    pub is_abnormal: bool,
    /// What.
    pub message: String,
}

impl CsiVolumes {
    /// How full a pod's volume is; nothing if its driver does not say.
    pub async fn stats(
        &self,
        uid: &str,
        name: &str,
    ) -> Result<Option<(VolumeStats, Option<Health>)>, CsiError> {
        let parts = &self.0;
        let Some(record) = parts.records.of_volume(uid, name) else { return Ok(None) };
        let key = record.key();
        let registered = parts.drivers.get(&key.driver).ok_or_else(|| no_driver(&key.driver))?;
        if !registered.capabilities.stats {
            return Ok(None);
        }
        let staging = parts.paths.staging_of(&key, name, record.is_block);
        let request = NodeGetVolumeStatsRequest {
            volume_id: key.handle.clone(),
            volume_path: parts.paths.target_of(uid, name, record.is_block).to_string_lossy().into_owned(),
            staging_target_path: if record.is_staged {
                staging.to_string_lossy().into_owned()
            } else {
                String::new()
            },
        };
        let answer = registered.driver.stats(request).await;
        let answer = answer.map_err(|source| CsiError::Call { driver: key.driver, source })?;
        let mut stats = VolumeStats::default();
        for usage in &answer.usage {
            // Some drivers do not know all three.
            let known = |value: i64| u64::try_from(value).ok();
            match usage.unit() {
                Unit::Bytes => {
                    stats.capacity = known(usage.total);
                    stats.available = known(usage.available);
                    stats.used = known(usage.used);
                }
                Unit::Inodes => {
                    stats.inodes = known(usage.total);
                    stats.inodes_free = known(usage.available);
                    stats.inodes_used = known(usage.used);
                }
                Unit::Unknown => {}
            }
        }
        let health = answer.volume_condition.filter(|_| registered.capabilities.condition);
        let health = health.map(|said| Health { is_abnormal: said.abnormal, message: said.message });
        Ok(Some((stats, health)))
    }
}
