//! Unmounts volumes of drivers: unpublish, unstage, detach.

use coracle_cli::causes;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use super::device;
use super::drivers::Registered;
use super::error::CsiError;
use super::mount::{CsiVolumes, Parts, no_driver};
use super::records::{Record, State};
use crate::volume::metrics::{Operation, plugin_of_driver};

impl CsiVolumes {
    /// Unmounts all volumes of a pod that has ended. Goes on behind an error; returns the first.
    pub async fn release(&self, uid: &str) -> Result<(), CsiError> {
        let parts = &self.0;
        let _held = parts.pods.lock(uid).await;
        let mut failed = None;
        for record in parts.records.of_pod(uid) {
            let begun = Instant::now();
            let unmounted = parts.unmount(uid, &record).await;
            let (plugin, succeeded) = (plugin_of_driver(&record.driver_name), unmounted.is_ok());
            self.metrics().operation(&plugin, Operation::Unmount, succeeded, begun.elapsed());
            if let Err(error) = unmounted {
                tracing::debug!(uid, volume = record.name, error = %causes::chain(&error), "volume not unmounted");
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => {
                // Volumes that were waited for and never mounted.
                parts.attachments.release_pod(uid);
                Ok(())
            }
        }
    }
}

impl Parts {
    /// The record of the pod goes last: an agent that ends before finishes the rest when it starts again.
    async fn unmount(&self, uid: &str, record: &Record) -> Result<(), CsiError> {
        let key = record.key();
        let _volume = self.volumes.lock(&key.unique()).await;
        let target = self.paths.target_of(uid, &record.name, record.is_block);
        if self.records.published(uid, &record.name) != Some(State::Planned) {
            let driver = self.registered(&key.driver)?.driver;
            if record.is_block {
                device::unlink(&self.paths, uid, &record.name)?;
            }
            let unpublished = driver.unpublish(&key.handle, &target).await;
            unpublished.map_err(|source| CsiError::Call { driver: key.driver.clone(), source })?;
            remove_target(&target)?;
            if record.is_block {
                device::remove_parent(&target);
            }
            self.records.note_published(uid, record, State::Planned)?;
        }
        if self.records.staged(&key).is_some() && !self.records.has_other_users(&key, uid) {
            let staging = self.paths.staging_of(&key, &record.name, record.is_block);
            let driver = self.registered(&key.driver)?.driver;
            let unstaged = driver.unstage(&key.handle, &staging).await;
            unstaged.map_err(|source| CsiError::Call { driver: key.driver.clone(), source })?;
            remove_target(&staging)?;
            self.records.forget_staged(&key)?;
            self.sizes.forget(&key.unique());
        }
        self.records.forget_published(uid, &record.name)?;
        self.attachments.release(&key.unique(), uid);
        tracing::info!(uid, driver = key.driver, volume = record.name, "volume unmounted");
        Ok(())
    }

    fn registered(&self, driver: &str) -> Result<Registered, CsiError> {
        self.drivers.get(driver).ok_or_else(|| no_driver(driver))
    }
}

/// Removes a mount point, which most drivers leave. Not what is in it: if a driver has not unmounted, that is the volume.
fn remove_target(path: &Path) -> Result<(), CsiError> {
    let removed = match std::fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => std::fs::remove_file(path),
        other => other,
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(CsiError::Directory { action: "rmdir", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}
