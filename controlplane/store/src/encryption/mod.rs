//! Encryption at rest: a store that encrypts the values of configured resources before it writes them to another store. The
//! first provider of a resource encrypts, all of them decrypt. At start, values of other providers are encrypted again. The
//! configuration can be replaced while the store is used.

// Errors.
mod error;
// The configuration file.
pub mod config;
// Random bytes.
mod random;
// Ciphers.
pub mod provider;
// Key management services.
pub mod kms;
// Which keys stored values are encrypted with.
pub mod usage;
// Encrypts stored values again.
pub mod rewrite;

use super::{
    Export, HistoryStart, KeyValue, Revision, Store, StoreError, StoreStatus, Unhealthy, Watch, WatchItem,
    Write,
};
use async_trait::async_trait;
use bytes::Bytes;
use config::Config;
pub use error::{CallError, EncryptionError, KeyError, KmsError, ServiceError};
use futures::StreamExt;
use parking_lot::RwLock;
use provider::Decrypted;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store that encrypts values.
pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    config: Arc<RwLock<Arc<Config>>>,
}

fn failed(key: &str, why: EncryptionError) -> StoreError {
    StoreError::Encryption { key: key.to_owned(), why }
}

/// The plain bytes of a stored value.
async fn decrypt(config: &Config, key: &str, value: &Bytes) -> Result<Decrypted, StoreError> {
    let providers = config.providers(key);
    if providers.is_empty() {
        return Ok(Decrypted { value: value.clone(), stale: false });
    }
    provider::decrypt(providers, key, value).await.map_err(|why| failed(key, why))
}

async fn decrypted(config: &Config, mut stored: KeyValue) -> Result<KeyValue, StoreError> {
    stored.value = decrypt(config, &stored.key, &stored.value).await?.value;
    Ok(stored)
}

/// Fails when the newest value of one of `keys` is encrypted and no configured key decrypts it, for example because the server
/// was started without its configuration: readers would take such an object for deleted. Only the newest value counts, because
/// keys of past ones may have been removed since.
pub async fn reject_undecryptable(store: &dyn Store, keys: BTreeSet<String>) -> Result<(), StoreError> {
    for key in keys {
        if store.get(&key).await?.is_some_and(|now| provider::is_encrypted(&now.value)) {
            return Err(StoreError::NoDecryptionKey(key));
        }
    }
    Ok(())
}

impl EncryptedStore {
    /// Encrypts the values of `inner` as the configuration says.
    pub fn new(inner: Arc<dyn Store>, config: Config) -> Self {
        Self { inner, config: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// The configuration that is in use.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().clone()
    }

    /// Uses another configuration from now on. Fails, and changes nothing, if a stored value is encrypted with a key that
    /// `config` does not have.
    pub async fn replace(&self, config: Config) -> Result<(), StoreError> {
        self.check(&config).await?;
        self.set(config);
        Ok(())
    }

    /// Fails if a configuration cannot be used: a service does not answer, or a stored value is encrypted with a key that it does
    /// not have.
    pub async fn check(&self, config: &Config) -> Result<(), StoreError> {
        config.prepare().await?;
        match usage::first_unreadable(&*self.inner, config).await? {
            Some(key) => Err(StoreError::NoDecryptionKey(key)),
            None => Ok(()),
        }
    }

    /// Uses a configuration that was checked.
    pub fn set(&self, config: Config) {
        *self.config.write() = Arc::new(config);
    }

    /// The newest value of a key, when the value of a past revision cannot be decrypted: its encryption key may have been
    /// removed. A newest value that cannot be decrypted is an error.
    async fn superseded(
        &self,
        key: &str,
        revision: Revision,
        error: StoreError,
    ) -> Result<Option<KeyValue>, StoreError> {
        match self.inner.get(key).await? {
            Some(now) if now.modified > revision => decrypted(&self.config(), now).await.map(Some),
            Some(_) => Err(error),
            None => Ok(None),
        }
    }

    /// Encrypts values again that are plain or encrypted by another than the first provider; returns their number. Values that
    /// another server changes meanwhile are skipped. Nothing is written when some value cannot be decrypted: with a wrong
    /// configuration the store would end up with values of two keys.
    pub async fn reencrypt(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        for write in self.stale().await? {
            match self.write(write).await {
                Ok(_) => count += 1,
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Fails if a stored value cannot be decrypted.
    pub async fn check_stored(&self) -> Result<(), StoreError> {
        self.stale().await.map(drop)
    }

    /// The writes that encrypt values again. Fails if a value cannot be decrypted.
    async fn stale(&self) -> Result<Vec<Write>, StoreError> {
        let config = self.config();
        config.prepare().await?;
        let (stored, _) = self.inner.range("/registry/", None).await?;
        let mut stale = Vec::new();
        for item in stored {
            let decrypted = decrypt(&config, &item.key, &item.value).await?;
            if provider::is_encrypted(&decrypted.value) {
                return Err(StoreError::NoDecryptionKey(item.key));
            }
            if decrypted.stale {
                let value = Some(decrypted.value);
                let durability = super::Durability::Sync;
                stale.push(Write { key: item.key, expect: item.modified, value, durability, fence: None });
            }
        }
        Ok(stale)
    }
}

#[async_trait]
impl Store for EncryptedStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.inner.get(key).await? {
            Some(stored) => decrypted(&self.config(), stored).await.map(Some),
            None => Ok(None),
        }
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        let (stored, revision) = self.inner.range(prefix, at).await?;
        let mut plain = Vec::with_capacity(stored.len());
        for item in stored {
            match decrypted(&self.config(), item.clone()).await {
                Ok(item) => plain.push(item),
                Err(error) => {
                    let now = self.superseded(&item.key, item.modified, error).await?;
                    plain.extend(now.map(|now| KeyValue { value: now.value, ..item }));
                }
            }
        }
        Ok((plain, revision))
    }

    async fn export(&self, prefix: &str) -> Result<Export, StoreError> {
        self.inner.export(prefix).await
    }

    async fn write(&self, mut write: Write) -> Result<Revision, StoreError> {
        let config = self.config();
        if let Some(value) = &write.value
            && let Some(first) = config.providers(&write.key).first()
        {
            let encrypted = first.encrypt(&write.key, value).await;
            write.value = Some(encrypted.map_err(|why| failed(&write.key, why))?);
        }
        match self.inner.write(write).await {
            Err(StoreError::Conflict(Some(there))) => {
                Err(StoreError::Conflict(Some(decrypted(&self.config(), there).await?)))
            }
            other => other,
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let encrypted = Self { inner: self.inner.clone(), config: self.config.clone() };
        let encrypted = Arc::new(encrypted);
        let plain = self.inner.watch(prefix, after).await?.then(move |notice| {
            let encrypted = encrypted.clone();
            async move {
                let mut notice = notice?;
                if let WatchItem::Change(change) = &mut notice
                    && let Some(value) = &change.value
                {
                    match decrypt(&encrypted.config(), &change.key, value).await {
                        Ok(decrypted) => change.value = Some(decrypted.value),
                        Err(error) => {
                            encrypted.superseded(&change.key, change.revision, error).await?;
                            return Ok::<_, StoreError>(WatchItem::Progress(change.revision));
                        }
                    }
                }
                Ok(notice)
            }
        });
        Ok(plain.boxed())
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
mod tests;
