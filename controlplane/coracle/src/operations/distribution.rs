//! The configuration of encryption at rest of a cluster with several servers. It is in the store, sealed with the other keys of
//! the cluster; every server that has the sealing key follows it.

use crate::join::keys::KEYS;
use coracle_pki::cluster_keys::{ClusterKeys, ClusterKeysError, ENCRYPTION, SealedError, SealingKey};
use coracle_store::{Durability, Revision, Store, StoreError, Watch, WatchItem, Write};
use futures::StreamExt;
use std::sync::Arc;

/// Other servers may change other keys of the cluster at the same time.
const ATTEMPTS: u32 = 5;

/// Why the configuration of the cluster cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    /// The store.
    #[error("the configuration of the cluster")]
    Store(#[source] Box<StoreError>),
    /// The envelope.
    #[error(transparent)]
    Sealed(#[from] SealedError),
    /// The keys do not fit together, or are too large.
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
    /// Nobody has stored them.
    #[error("the keys of the cluster are not in the store")]
    Missing,
    /// The configuration is no text.
    #[error("the configuration of the cluster is not text")]
    Text(#[source] std::string::FromUtf8Error),
    /// Somebody else was faster.
    #[error("the configuration of the cluster was changed by another server at the same time: try again")]
    Changed,
    /// Others change other keys all the time.
    #[error("the keys of the cluster in the store keep changing")]
    Contended,
}

impl From<StoreError> for DistributionError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

/// The sealed copy in the store.
pub struct Distribution {
    /// The store without encryption at rest.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sealing: SealingKey,
}

struct Found {
    keys: ClusterKeys,
    modified: Revision,
    text: Option<String>,
}

impl Distribution {
    async fn read(&self) -> Result<Found, DistributionError> {
        let stored = self.store.get(KEYS).await?.ok_or(DistributionError::Missing)?;
        let keys = self.sealing.open(&stored.value)?;
        let text = keys.file(ENCRYPTION).map(|bytes| String::from_utf8(bytes.to_vec())).transpose();
        let text = text.map_err(DistributionError::Text)?;
        Ok(Found { keys, modified: stored.modified, text })
    }

    /// Gives all servers another configuration, if the cluster still has `before`.
    pub(crate) async fn publish(&self, before: Option<&str>, text: &str) -> Result<(), DistributionError> {
        for _ in 0..ATTEMPTS {
            let found = self.read().await?;
            if found.text.as_deref() == Some(text) {
                return Ok(());
            }
            if found.text.as_deref() != before {
                return Err(DistributionError::Changed);
            }
            let keys = found.keys.with_encryption(Some(text.as_bytes().to_vec()))?;
            let write = Write {
                key: KEYS.to_owned(),
                expect: found.modified,
                value: Some(self.sealing.seal(&keys)?.into()),
                durability: Durability::Sync,
                fence: None,
            };
            match self.store.write(write).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(DistributionError::Contended)
    }

    /// Follows the configuration.
    pub(crate) fn following(&self) -> Following<'_> {
        Following { distribution: self, changes: None }
    }
}

/// The configuration of the cluster, as it changes.
pub(crate) struct Following<'a> {
    distribution: &'a Distribution,
    changes: Option<Watch>,
}

impl Following<'_> {
    /// The configuration now, and from the second time on when the keys of the cluster have changed. After an error it begins
    /// again.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, DistributionError> {
        let Some(mut changes) = self.changes.take() else {
            // Asked for before the value: a change in between is seen twice, not missed.
            let begun = self.distribution.store.revision().await?;
            let text = self.distribution.read().await?.text;
            self.changes = Some(self.distribution.store.watch(KEYS, begun).await?);
            return Ok(text);
        };
        while let Some(change) = changes.next().await {
            if matches!(change?, WatchItem::Change(change) if change.key == KEYS) {
                let text = self.distribution.read().await?.text;
                self.changes = Some(changes);
                return Ok(text);
            }
        }
        Err(StoreError::Ended.into())
    }

    /// Begins again: the next one is the configuration of now.
    pub(crate) fn again(&mut self) {
        self.changes = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::join::claim::Claimer;
    use coracle_pki::Pki;
    use coracle_store::{Datastore, open};
    use std::time::Duration;

    async fn cluster() -> (tempfile::TempDir, Distribution) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&Datastore::Embedded, dir.path()).await.unwrap();
        let pki = dir.path().join("pki");
        Pki::ensure(&pki, &[], Duration::from_secs(3600)).unwrap();
        let claimer = Claimer { store: &*store, dir: &pki, encryption: None };
        let sealing = claimer.publish().await.unwrap().unwrap();
        (dir, Distribution { store, sealing })
    }

    #[tokio::test]
    async fn servers_see_what_another_one_publishes() {
        let (_dir, own) = cluster().await;
        let mut seen = own.following();
        assert_eq!(seen.next().await.unwrap(), None);
        own.publish(None, "one").await.unwrap();
        assert_eq!(seen.next().await.unwrap().as_deref(), Some("one"));
        own.publish(Some("one"), "two").await.unwrap();
        assert_eq!(seen.next().await.unwrap().as_deref(), Some("two"));
        seen.again();
        assert_eq!(seen.next().await.unwrap().as_deref(), Some("two"), "as it is now, without a change");
    }

    #[tokio::test]
    async fn what_another_server_changed_is_not_overwritten() {
        let (_dir, own) = cluster().await;
        own.publish(None, "one").await.unwrap();
        let refused = own.publish(None, "mine").await.unwrap_err();
        assert!(matches!(refused, DistributionError::Changed), "{refused}");
        own.publish(None, "one").await.unwrap();
        assert_eq!(own.read().await.unwrap().text.as_deref(), Some("one"));
        let large = own.publish(Some("one"), &"x".repeat(65 << 10)).await.unwrap_err();
        assert!(matches!(large, DistributionError::Keys(_)), "{large}");
    }
}
