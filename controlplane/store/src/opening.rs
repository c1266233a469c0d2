//! Opens a store and checks its format.

use super::{Datastore, DatastoreError, Store, StoreError, embedded::Embedded, etcd::Etcd, format, load};
use coracle_cli::supervise::Supervisor;
use coracle_trace::Recorder;
use futures::TryStreamExt;
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
        let store = self.connect().await?;
        format::ensure(&*store).await?;
        Ok(store)
    }

    /// Opens the store of a cluster; `None` if the store holds nothing of a cluster. Nothing is written to it then.
    pub async fn open_filled(self) -> Result<Option<Arc<dyn Store>>, StoreError> {
        let store = self.connect().await?;
        if !is_filled(&*store).await? {
            return Ok(None);
        }
        format::ensure(&*store).await?;
        Ok(Some(store))
    }

    async fn connect(self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self.datastore {
            Datastore::Embedded => {
                let (path, recorder) = (self.embedded_path(), self.recorder);
                let opened =
                    tokio::task::spawn_blocking(move || Embedded::recording(&path, recorder)).await?;
                Arc::new(opened?)
            }
            Datastore::Etcd(options) => Arc::new(Etcd::connect(options, self.supervisor).await?),
            Datastore::ManagedEtcd => return Err(DatastoreError::NotStarted.into()),
        })
    }

    pub(crate) fn embedded_path(&self) -> PathBuf {
        self.data_dir.join("store")
    }
}

/// Whether a store has more than what opening it writes.
async fn is_filled(store: &dyn Store) -> Result<bool, StoreError> {
    let mut keys = store.export("/").await?.keys;
    while let Some(one) = keys.try_next().await? {
        if one.key != format::FORMAT_KEY && load::is_loaded(&one.key) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conformance_tests::put;

    #[tokio::test]
    async fn a_store_without_a_cluster_is_not_opened_and_not_changed() {
        for (key, filled) in [
            ("/coracle/fences/scheduler", false),
            ("/coracle/cluster-keys", true),
            ("/registry/namespaces/default", true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let supervisor = Supervisor::default();
            let opening = Opening {
                datastore: &Datastore::Embedded,
                data_dir: dir.path(),
                supervisor: &supervisor,
                recorder: Recorder::OFF,
            };
            assert!(opening.open_filled().await.unwrap().is_none(), "nothing is there");
            let store = Embedded::open(&dir.path().join("store")).unwrap();
            assert!(store.get(format::FORMAT_KEY).await.unwrap().is_none(), "nothing was written");
            drop(store);
            drop(opening.open().await.unwrap());
            assert!(opening.open_filled().await.unwrap().is_none(), "there is the format only");
            let store = opening.open().await.unwrap();
            put(&*store, key, 0, "{}").await.unwrap();
            drop(store);
            assert_eq!(opening.open_filled().await.unwrap().is_some(), filled, "{key}");
        }
    }
}
