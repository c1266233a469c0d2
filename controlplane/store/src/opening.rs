//! Opens a store and checks its format.

use super::{Datastore, DatastoreError, Store, StoreError, embedded::Embedded, etcd::Etcd, format};
use coracle_cli::supervise::Supervisor;
use coracle_trace::Recorder;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Opens a store; an embedded one lives under `data_dir`. Fails when the directory is in use by another process, no etcd
/// answers, or a newer version has written the store.
pub async fn open(datastore: &Datastore, data_dir: &Path) -> Result<Arc<dyn Store>, StoreError> {
    supervised(datastore, data_dir, &Supervisor::default()).await
}

/// The same; the supervisor keeps its tasks running.
pub async fn supervised(
    datastore: &Datastore,
    data_dir: &Path,
    supervisor: &Supervisor,
) -> Result<Arc<dyn Store>, StoreError> {
    Opening { datastore, data_dir, supervisor, recorder: Recorder::OFF }.open().await
}

/// A store that is to be opened.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// Which.
    pub datastore: &'a Datastore,
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
        let store: Arc<dyn Store> = match self.datastore {
            Datastore::Embedded => {
                let (path, recorder) = (self.embedded_path(), self.recorder);
                let opened =
                    tokio::task::spawn_blocking(move || Embedded::recording(&path, recorder)).await?;
                Arc::new(opened?)
            }
            Datastore::Etcd(options) => Arc::new(Etcd::connect(options, self.supervisor).await?),
            Datastore::ManagedEtcd => return Err(DatastoreError::NotStarted.into()),
        };
        format::ensure(&*store).await?;
        Ok(store)
    }

    pub(crate) fn embedded_path(&self) -> PathBuf {
        self.data_dir.join("store")
    }
}
