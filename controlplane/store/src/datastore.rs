//! Opens the store that `--datastore` names.

use super::{Store, StoreError, embedded::Embedded, etcd::Etcd};
use coracle_cli::supervise::Supervisor;
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
    if datastore == "embedded" {
        let path = data_dir.join("store");
        let store = tokio::task::spawn_blocking(move || Embedded::open(&path)).await??;
        return Ok(Arc::new(store));
    }
    if let Some(endpoints) = datastore.strip_prefix("etcd://") {
        return Ok(Arc::new(Etcd::connect(endpoints, supervisor).await?));
    }
    Err(StoreError::Unknown(datastore.to_owned()))
}
