//! Encrypts stored values again that another than the first provider has encrypted, page by page. It can be interrupted at any
//! value and be repeated: a value that is under the first key already stays.

use super::{EncryptedStore, decrypt, usage::OBJECTS};
use crate::{Durability, KeyValue, Store, StoreError, Write};
use futures::{StreamExt, TryStreamExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// Values that are written at the same time.
const BATCH: usize = 32;
/// How often a value is tried that others change at the same time.
const ATTEMPTS: u32 = 10;

/// How far it is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Values that were looked at.
    pub seen: AtomicU64,
    /// Values that were written again.
    pub written: AtomicU64,
}

impl EncryptedStore {
    /// Encrypts values again, some at a time. What others change meanwhile is encrypted with the first key by
    /// that change, or by another attempt.
    pub async fn rewrite(&self, progress: &Progress) -> Result<(), StoreError> {
        self.config().prepare().await?;
        let keys = self.inner.export(OBJECTS).await?.keys;
        let pages = keys.try_filter(|one| std::future::ready(!self.config().providers(&one.key).is_empty()));
        pages
            .map(|one| async move {
                progress.seen.fetch_add(1, Ordering::Relaxed);
                if self.rewrite_one(one?).await? {
                    progress.written.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), StoreError>(())
            })
            .buffer_unordered(BATCH)
            .try_collect::<()>()
            .await
    }

    /// Whether the value had to be written.
    async fn rewrite_one(&self, mut stored: KeyValue) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let found = match decrypt(&self.config(), &stored.key, &stored.value).await {
                Ok(found) => found,
                // The export is of the past: the value may have been written with a newer key, or be gone.
                Err(error) => match self.inner.get(&stored.key).await? {
                    Some(now) if now.modified > stored.modified => {
                        stored = now;
                        continue;
                    }
                    Some(_) => return Err(error),
                    None => return Ok(false),
                },
            };
            if !found.stale {
                return Ok(false);
            }
            let write = Write {
                key: stored.key.clone(),
                expect: stored.modified,
                value: Some(found.value),
                durability: Durability::Sync,
                fence: None,
            };
            match self.write(write).await {
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict(_)) => match self.inner.get(&stored.key).await? {
                    Some(now) => stored = now,
                    None => return Ok(false),
                },
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict(None))
    }
}
