//! A store whose writes can be paused, while reads and watches go on.

use crate::{
    Export, HistoryStart, KeyValue, Revision, Store, StoreError, StoreStatus, Unhealthy, Watch, Write,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::RwLock;

/// How long writes that have begun may take when a pause begins.
const DRAIN: Duration = Duration::from_secs(10);

/// A store whose writes can be paused.
pub struct PausableStore {
    inner: Arc<dyn Store>,
    /// Writes hold it for reading, so that a pause begins when they have ended.
    paused: RwLock<bool>,
}

impl PausableStore {
    /// Around another store; writes are not paused.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, paused: RwLock::new(false) }
    }

    /// The store behind it, whose writes are not paused.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    /// Pauses writes and waits for those that have begun. False if they do not end in time: then nothing is paused.
    pub async fn pause(&self) -> bool {
        match tokio::time::timeout(DRAIN, self.paused.write()).await {
            Ok(mut paused) => {
                *paused = true;
                true
            }
            Err(_) => false,
        }
    }

    /// Takes writes again.
    pub async fn resume(&self) {
        *self.paused.write().await = false;
    }

    /// Whether writes are paused.
    pub async fn is_paused(&self) -> bool {
        *self.paused.read().await
    }
}

#[async_trait]
impl Store for PausableStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        self.inner.range(prefix, at).await
    }

    async fn export(&self, prefix: &str) -> Result<Export, StoreError> {
        self.inner.export(prefix).await
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let paused = self.paused.read().await;
        if *paused {
            return Err(StoreError::Paused);
        }
        self.inner.write(write).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(prefix, after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.inner.revision().await
    }

    async fn history_start(&self, changes: u64) -> Result<HistoryStart, StoreError> {
        self.inner.history_start(changes).await
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.inner.compact(upto).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }

    async fn health(&self) -> Result<(), Unhealthy> {
        self.inner.health().await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.inner.status().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{conformance_tests::put, embedded::Embedded};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pause_refuses_writes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = PausableStore::new(Arc::new(Embedded::open(dir.path()).unwrap()));
        let first = put(&store, "/registry/a", 0, "1").await.unwrap();
        assert!(store.pause().await && store.is_paused().await);
        let refused = put(&store, "/registry/a", first, "2").await.unwrap_err();
        assert!(matches!(refused, StoreError::Paused), "{refused:?}");
        assert_eq!(&store.get("/registry/a").await.unwrap().unwrap().value[..], b"1");
        assert_eq!(store.revision().await.unwrap(), first);
        store.resume().await;
        put(&store, "/registry/a", first, "2").await.unwrap();
    }
}
