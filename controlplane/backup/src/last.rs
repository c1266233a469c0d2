//! The results of the last backup and of the last one that succeeded, keys of the store: `coracle status` shows them.

use coracle_store::{Durability, Revision, Store, StoreError, Write};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The key of the last one.
pub const KEY: &str = "/coracle/last-backup";
/// The key of the last one that succeeded.
pub const GOOD: &str = "/coracle/last-good-backup";
const ATTEMPTS: u32 = 5;
const MAX_TEXT: usize = 4096;

/// The result of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastBackup {
    /// When it ended.
    pub time: Timestamp,
    /// The revision of the store; 0 if it failed before that was known.
    pub revision: Revision,
    /// Where it is.
    pub location: String,
    /// Its size.
    pub bytes: u64,
    /// Why it failed; `None` if it did not.
    #[serde(default)]
    pub error: Option<String>,
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Writes the result of a backup into the store.
pub async fn write(store: &dyn Store, mut last: LastBackup) -> Result<(), StoreError> {
    last.location = shortened(&last.location);
    last.error = last.error.as_deref().map(shortened);
    let value = serde_json::to_vec(&last).expect("numbers and texts are JSON");
    if last.error.is_none() {
        put(store, GOOD, &value).await?;
    }
    put(store, KEY, &value).await
}

async fn put(store: &dyn Store, key: &str, value: &[u8]) -> Result<(), StoreError> {
    for attempt in 1.. {
        let expect = store.get(key).await?.map_or(0, |now| now.modified);
        let write = Write {
            key: key.to_owned(),
            expect,
            value: Some(value.to_vec().into()),
            durability: Durability::Sync,
            fence: None,
        };
        match store.write(write).await {
            // Another server wrote its own.
            Err(StoreError::Conflict(_)) if attempt < ATTEMPTS => {}
            written => return written.map(drop),
        }
    }
    Ok(())
}

/// The last one; `None` if there was no backup, or a newer version has written it otherwise.
pub async fn read(store: &dyn Store) -> Result<Option<LastBackup>, StoreError> {
    find(store, KEY).await
}

/// The last one that succeeded. Servers before this version recorded only the last one.
pub async fn read_good(store: &dyn Store) -> Result<Option<LastBackup>, StoreError> {
    match find(store, GOOD).await? {
        Some(good) => Ok(Some(good)),
        None => Ok(read(store).await?.filter(|last| last.error.is_none())),
    }
}

async fn find(store: &dyn Store, key: &str) -> Result<Option<LastBackup>, StoreError> {
    let found = store.get(key).await?;
    Ok(found.and_then(|found| serde_json::from_slice(&found.value).ok()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_newest_result_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = coracle_store::open(&coracle_store::Datastore::Embedded, dir.path()).await.unwrap();
        assert_eq!(read(&*store).await.unwrap(), None);
        let mut last = LastBackup {
            time: Timestamp::UNIX_EPOCH,
            revision: 7,
            location: "/backups/one".to_owned(),
            bytes: 5,
            error: None,
        };
        write(&*store, last.clone()).await.unwrap();
        let good = last.clone();
        assert_eq!(read_good(&*store).await.unwrap(), Some(good.clone()));
        last.revision = 9;
        last.error = Some("x".repeat(10_000));
        write(&*store, last.clone()).await.unwrap();
        last.error = Some("x".repeat(MAX_TEXT));
        assert_eq!(read(&*store).await.unwrap(), Some(last));
        assert_eq!(read_good(&*store).await.unwrap(), Some(good), "a failure does not hide it");
    }

    #[tokio::test]
    async fn a_result_of_an_earlier_version_counts() {
        let dir = tempfile::tempdir().unwrap();
        let store = coracle_store::open(&coracle_store::Datastore::Embedded, dir.path()).await.unwrap();
        let last = r#"{"time":"2026-01-01T00:00:00Z","revision":7,"location":"/backups/one","bytes":5}"#;
        put(&*store, KEY, last.as_bytes()).await.unwrap();
        assert_eq!(read_good(&*store).await.unwrap().unwrap().revision, 7);
    }
}
