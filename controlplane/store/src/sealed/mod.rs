//! Encryption at rest: values of chosen resources are sealed on their way to a store and opened on their way back. The
//! first provider of a resource seals, all of them open; values that another one sealed are sealed anew at start.

// The file that says what is sealed with what.
pub mod config;
// Ciphers.
pub mod provider;
// A service that keeps the key to itself.
pub mod kms;

use super::{KeyValue, Notice, Past, Revision, Store, StoreError, Unhealthy, Watch, Write};
use async_trait::async_trait;
use bytes::Bytes;
use config::Config;
use futures::StreamExt;
use provider::Opened;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store whose values are sealed.
pub struct Sealed {
    inner: Arc<dyn Store>,
    config: Arc<Config>,
}

fn failed(key: &str, why: &str) -> StoreError {
    StoreError::Engine(format!("{key}: {why}"))
}

/// The plain bytes of a stored value.
async fn open(config: &Config, key: &str, value: &Bytes) -> Result<Opened, StoreError> {
    let providers = config.providers(key);
    if providers.is_empty() {
        return Ok(Opened { value: value.clone(), stale: false });
    }
    provider::open(providers, key, value).await.map_err(|why| failed(key, &why))
}

async fn opened(config: &Config, mut stored: KeyValue) -> Result<KeyValue, StoreError> {
    stored.value = open(config, &stored.key, &stored.value).await?.value;
    Ok(stored)
}

/// Refuses a store that holds a value which is still sealed after all keys that there are were tried: none, when the server is
/// started without its configuration. Readers would take such an object for gone. `keys` are those of which some revision was
/// seen sealed; only the newest counts, because keys of past ones may have been taken away since.
pub async fn refuse_unopened(store: &dyn Store, keys: BTreeSet<String>) -> Result<(), StoreError> {
    for key in keys {
        if store.get(&key).await?.is_some_and(|now| provider::is_sealed(&now.value)) {
            return Err(StoreError::Sealed(key));
        }
    }
    Ok(())
}

impl Sealed {
    /// Puts the seals of a configuration around a store.
    pub fn new(inner: Arc<dyn Store>, config: Config) -> Self {
        Self { inner, config: Arc::new(config) }
    }

    /// What a key holds now, when the value of a past revision cannot be opened: history may reach back to before the
    /// first key, or to one that was taken away. A newest value that cannot be opened stays an error.
    async fn superseded(
        &self,
        key: &str,
        revision: Revision,
        error: StoreError,
    ) -> Result<Option<KeyValue>, StoreError> {
        match self.inner.get(key).await? {
            Some(now) if now.modified > revision => opened(&self.config, now).await.map(Some),
            Some(_) => Err(error),
            None => Ok(None),
        }
    }

    /// Seals anew what is plain or sealed with another than the first provider; returns how many values. Somebody else
    /// who changes a value meanwhile has sealed it already. Nothing is written when there is a value that no key opens: with
    /// the wrong configuration the store would be one of two keys.
    pub async fn reseal(&self) -> Result<usize, StoreError> {
        self.config.prepare().await.map_err(StoreError::Engine)?;
        let (stored, _) = self.inner.range("/registry/", None).await?;
        let mut stale = Vec::new();
        for item in stored {
            let opened = open(&self.config, &item.key, &item.value).await?;
            if provider::is_sealed(&opened.value) {
                return Err(StoreError::Sealed(item.key));
            }
            if opened.stale {
                let value = Some(opened.value);
                let durability = super::Durability::Sync;
                stale.push(Write { key: item.key, expect: item.modified, value, durability });
            }
        }
        let mut count = 0;
        for write in stale {
            match self.write(write).await {
                Ok(_) => count += 1,
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

#[async_trait]
impl Store for Sealed {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.inner.get(key).await? {
            Some(stored) => opened(&self.config, stored).await.map(Some),
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
            match opened(&self.config, item.clone()).await {
                Ok(item) => plain.push(item),
                Err(error) => {
                    let now = self.superseded(&item.key, item.modified, error).await?;
                    plain.extend(now.map(|now| KeyValue { value: now.value, ..item }));
                }
            }
        }
        Ok((plain, revision))
    }

    async fn write(&self, mut write: Write) -> Result<Revision, StoreError> {
        if let Some(value) = &write.value
            && let Some(first) = self.config.providers(&write.key).first()
        {
            let sealed = first.seal(&write.key, value).await;
            write.value = Some(sealed.map_err(|why| failed(&write.key, &why))?);
        }
        match self.inner.write(write).await {
            Err(StoreError::Conflict(Some(there))) => {
                Err(StoreError::Conflict(Some(opened(&self.config, there).await?)))
            }
            other => other,
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        let sealed = Self { inner: self.inner.clone(), config: self.config.clone() };
        let sealed = Arc::new(sealed);
        let plain = self.inner.watch(prefix, after).await?.then(move |notice| {
            let sealed = sealed.clone();
            async move {
                let mut notice = notice?;
                if let Notice::Change(change) = &mut notice
                    && let Some(value) = &change.value
                {
                    match open(&sealed.config, &change.key, value).await {
                        Ok(opened) => change.value = Some(opened.value),
                        Err(error) => {
                            sealed.superseded(&change.key, change.revision, error).await?;
                            return Ok::<_, StoreError>(Notice::Progress(change.revision));
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

    async fn past(&self, changes: u64) -> Result<Past, StoreError> {
        self.inner.past(changes).await
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
}

#[cfg(test)]
mod tests;
