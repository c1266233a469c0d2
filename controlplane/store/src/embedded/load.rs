//! A new store with the keys of another. It is made aside: after a failure there is none.

use super::{
    disk::{Unfinished, is_empty},
    error::EmbeddedError,
    files::wait_until_closed,
    record::{Marks, Record, Version},
};
use crate::{
    KeyValue, StoreError,
    load::{
        error::LoadError,
        loaded::{Keys, Loaded, Summary},
    },
};
use fjall::PersistMode;
use futures::StreamExt;
use std::path::Path;

/// Limits of what is written at once.
const BATCH_KEYS: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;

/// Makes a store at the path with these keys at their revisions, compacted up to where it continues.
pub(crate) async fn load(path: &Path, keys: Keys<'_>, loaded: Loaded) -> Result<Summary, StoreError> {
    let compacted = loaded.floor()?;
    if !is_empty(path) {
        return Err(LoadError::NotEmpty(path.display().to_string()).into());
    }
    let begun = path.to_owned();
    let unfinished = tokio::task::spawn_blocking(move || Unfinished::begin(&begun)).await??;
    let (unfinished, filled) = fill(unfinished, keys).await?;
    tokio::task::spawn_blocking(move || match filled {
        Ok(keys) => {
            // All that is in the log belongs to compacted history.
            unfinished.finish(Marks { compacted, whole_from: compacted, ..Marks::default() })?;
            Ok(Summary { keys, revision: compacted })
        }
        Err(error) => {
            unfinished.remove()?;
            Err(error)
        }
    })
    .await?
}

/// Removes a store that nobody uses yet. Those who had it open have dropped it.
pub(crate) async fn remove(path: &Path) -> Result<(), StoreError> {
    let path = path.to_owned();
    let removed = tokio::task::spawn_blocking(move || {
        // The engine's threads may still write to it.
        wait_until_closed(&path)
            .and_then(|()| std::fs::remove_dir_all(&path))
            .map_err(|error| EmbeddedError::Remove { path, error })
    });
    Ok(removed.await??)
}

/// Writes all keys. Returns their number, or why it was given up.
async fn fill(
    mut unfinished: Unfinished,
    mut keys: Keys<'_>,
) -> Result<(Unfinished, Result<u64, StoreError>), StoreError> {
    let mut count = 0;
    loop {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_KEYS && bytes < BATCH_BYTES {
            match keys.next().await {
                Some(Ok(one)) => {
                    bytes += one.key.len() + one.value.len();
                    batch.push(one);
                }
                Some(Err(error)) => return Ok((unfinished, Err(error))),
                None => break,
            }
        }
        if batch.is_empty() {
            return Ok((unfinished, Ok(count)));
        }
        count += batch.len() as u64;
        let written = tokio::task::spawn_blocking(move || {
            let written = put(&unfinished, &batch);
            (unfinished, written)
        });
        let result;
        (unfinished, result) = written.await?;
        if let Err(error) = result {
            return Ok((unfinished, Err(error)));
        }
    }
}

fn put(unfinished: &Unfinished, keys: &[KeyValue]) -> Result<(), StoreError> {
    let files = &unfinished.files;
    let mut batch = files.db.batch();
    let mut revisions = std::collections::HashSet::with_capacity(keys.len());
    for one in keys {
        let revision = one.modified.to_be_bytes();
        if !revisions.insert(one.modified) || files.log.contains_key(revision)? {
            return Err(LoadError::Twice(one.key.clone()).into());
        }
        let version = Version { created: one.created, modified: one.modified };
        let record = Record { created: one.created, previous: 0, key: &one.key, value: Some(&one.value) };
        batch.insert(&files.index, one.key.as_str(), version.encode());
        batch.insert(&files.log, revision, record.encode());
    }
    Ok(batch.durability(Some(PersistMode::Buffer)).commit()?)
}
