//! The version of the stored format, a key of the store itself. A server that does not know the format does not touch the
//! store. A store without the key is version 0, which has the same format as version 1 but does not say so.

use crate::{Durability, Store, StoreError, Write};
use serde::{Deserialize, Serialize};

/// The key of the format.
pub const FORMAT_KEY: &str = "/coracle/format";
/// The version that this server writes.
pub const VERSION: u32 = 1;
/// The oldest version that reads what this server writes.
const OLDEST_READER: u32 = 1;
/// More is no format.
const MAX_SIZE: usize = 64 << 10;
/// Servers that start together may write the key at the same time.
const ATTEMPTS: u32 = 5;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// A newer version has written it.
    #[error("the store has format {found}, written by {by}; this server reads formats up to {supported}")]
    Newer {
        /// Version of the store.
        found: u32,
        /// Newest version that this server reads.
        supported: u32,
        /// The program that wrote it.
        by: String,
    },
    /// The key does not hold a format.
    #[error("/coracle/format in the store is not a format")]
    Unreadable(#[source] serde_json::Error),
    /// The key holds too much.
    #[error("/coracle/format in the store has {0} bytes")]
    TooLarge(usize),
    /// Other servers change it all the time.
    #[error("/coracle/format in the store keeps changing")]
    Changing,
}

/// What the key holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Format {
    version: u32,
    /// Servers that know only older versions must not use the store.
    oldest_reader: u32,
    written_by: String,
}

impl Format {
    fn current() -> Self {
        let written_by = format!("coracle {}", env!("CARGO_PKG_VERSION"));
        Self { version: VERSION, oldest_reader: OLDEST_READER, written_by }
    }
}

/// Fails if a server of this version must not use a store with this format.
pub fn check(value: &[u8]) -> Result<(), FormatError> {
    read(value).map(drop)
}

/// The oldest version of the format that a server must know to use a store with this format.
pub fn oldest_reader(value: &[u8]) -> Result<u32, FormatError> {
    read(value).map(|format| format.oldest_reader)
}

fn read(value: &[u8]) -> Result<Format, FormatError> {
    if value.len() > MAX_SIZE {
        return Err(FormatError::TooLarge(value.len()));
    }
    let found: Format = serde_json::from_slice(value).map_err(FormatError::Unreadable)?;
    if found.oldest_reader > VERSION {
        return Err(FormatError::Newer { found: found.version, supported: VERSION, by: found.written_by });
    }
    Ok(found)
}

/// Checks the format of a store that is opened and brings it to this version. Nothing is written if it cannot be used.
pub(crate) async fn ensure(store: &dyn Store) -> Result<(), StoreError> {
    for _ in 0..ATTEMPTS {
        let now = store.get(FORMAT_KEY).await?;
        let expect = now.as_ref().map_or(0, |now| now.modified);
        if let Some(now) = now
            && read(&now.value)?.version >= VERSION
        {
            return Ok(());
        }
        let value = serde_json::to_vec(&Format::current()).map_err(FormatError::Unreadable)?;
        let write = Write {
            key: FORMAT_KEY.to_owned(),
            expect,
            value: Some(value.into()),
            durability: Durability::Sync,
            fence: None,
        };
        match store.write(write).await {
            Err(StoreError::Conflict(_)) => {}
            written => return written.map(drop),
        }
    }
    Err(FormatError::Changing.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Datastore, conformance_tests::put, embedded::Embedded, open};

    #[tokio::test]
    async fn a_newer_store_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let newer = r#"{"version":9,"oldestReader":8,"writtenBy":"coracle 4.2"}"#;
        let store = Embedded::open(&dir.path().join("store")).unwrap();
        let written = put(&store, FORMAT_KEY, 0, newer).await.unwrap();
        drop(store);
        let refused = open(&Datastore::Embedded, dir.path()).await.err().unwrap();
        assert_eq!(
            refused.to_string(),
            "the store has format 9, written by coracle 4.2; this server reads formats up to 1"
        );
        let store = Embedded::open(&dir.path().join("store")).unwrap();
        assert_eq!(store.revision().await.unwrap(), written);
    }

    #[tokio::test]
    async fn a_store_without_format_gets_it_once_and_a_compatible_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&Datastore::Embedded, dir.path()).await.unwrap();
        let first = store.get(FORMAT_KEY).await.unwrap().unwrap();
        check(&first.value).unwrap();
        drop(store);
        let store = open(&Datastore::Embedded, dir.path()).await.unwrap();
        assert_eq!(store.get(FORMAT_KEY).await.unwrap().unwrap(), first);
        let later = r#"{"version":9,"oldestReader":1,"writtenBy":"coracle 4.2"}"#;
        let later = put(&*store, FORMAT_KEY, first.modified, later).await.unwrap();
        ensure(&*store).await.unwrap();
        assert_eq!(store.get(FORMAT_KEY).await.unwrap().unwrap().modified, later);
        put(&*store, FORMAT_KEY, later, "{}").await.unwrap();
        assert!(matches!(ensure(&*store).await, Err(StoreError::Format(FormatError::Unreadable(_)))));
    }
}
