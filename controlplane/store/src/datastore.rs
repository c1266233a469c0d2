//! Opens the store that `--datastore` names.

use super::{Store, StoreError, embedded::Embedded, etcd::Etcd};
use coracle_cli::supervise::Supervisor;
use coracle_trace::Recorder;
use std::{path::Path, sync::Arc};

/// Opens the store that `datastore` names: `embedded`, which lives under `data_dir`, or
/// `etcd://host:port[,host:port]`. Fails when the directory is in use by another process or no etcd answers.
pub async fn open(datastore: &str, data_dir: &Path) -> Result<Arc<dyn Store>, StoreError> {
    supervised(datastore, data_dir, &Supervisor::default()).await
}

/// The same; the supervisor keeps its tasks running.
pub async fn supervised(
    datastore: &str,
    data_dir: &Path,
    supervisor: &Supervisor,
) -> Result<Arc<dyn Store>, StoreError> {
    Opening { datastore, data_dir, supervisor, recorder: Recorder::OFF }.open().await
}

/// A store that is to be opened.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// Which, as for [`open`].
    pub datastore: &'a str,
    /// The directory of an embedded store.
    pub data_dir: &'a Path,
    /// Keeps the store's tasks running.
    pub supervisor: &'a Supervisor,
    /// Gets the times of the embedded store's batches.
    pub recorder: Recorder,
}

impl Opening<'_> {
    /// Opens the store; fails as [`open`] does.
    pub async fn open(self) -> Result<Arc<dyn Store>, StoreError> {
        if self.datastore == "embedded" {
            let (path, recorder) = (self.data_dir.join("store"), self.recorder);
            let store = tokio::task::spawn_blocking(move || Embedded::recording(&path, recorder)).await??;
            return Ok(Arc::new(store));
        }
        if let Some(endpoints) = self.datastore.strip_prefix("etcd://") {
            return Ok(Arc::new(Etcd::connect(endpoints, self.supervisor).await?));
        }
        Err(StoreError::Unknown(self.datastore.to_owned()))
    }
}
