//! Fills an empty store with the keys of another, from a backup or a copy.
//!
//! The embedded engine keeps the revisions of the keys. etcd counts its own: it gets an offset, so that the revisions that
//! clients see are greater than all before. Either store begins compacted, and watchers of the past list again.

// Where the keys come from, and what was loaded.
pub(crate) mod loaded;
// Why keys cannot be loaded.
pub(crate) mod error;

pub use error::LoadError;
pub use loaded::{Loaded, Summary};

use crate::{
    Datastore, DatastoreError, KeyValue, OWN_KEYS, Opening, Revision, StoreError, embedded, etcd, format,
};
use futures::{Stream, StreamExt};

/// Revisions that a restore skips: more than were written since the backup.
pub const RESTORE_BUMP: Revision = 1_000_000;
const MAX_KEY: usize = 4096;

/// Loads the keys into the store, which must be empty. The store is not open meanwhile; open it afterwards. Keys that are about
/// the old store itself (offset, fences) are left out. If it fails, what was written is removed.
pub async fn into<E>(
    target: &Opening<'_>,
    keys: impl Stream<Item = Result<KeyValue, E>> + Send,
    loaded: Loaded,
) -> Result<Summary, StoreError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    loaded.floor()?;
    let mut last = String::new();
    let keys = keys.filter_map(move |one| {
        std::future::ready(match one {
            Ok(one) if one.key <= last => Some(Err(LoadError::Order(shortened(&one.key)).into())),
            Ok(one) => {
                last.clone_from(&one.key);
                is_loaded(&last).then(|| checked(one, &loaded))
            }
            Err(error) => Some(Err(LoadError::Source(Box::new(error)).into())),
        })
    });
    match target.datastore {
        Datastore::Embedded => embedded::load(&target.embedded_path(), keys.fuse().boxed(), loaded).await,
        Datastore::Etcd(options) => etcd::load(options, keys.boxed(), loaded).await,
        Datastore::ManagedEtcd => Err(DatastoreError::NotStarted.into()),
    }
}

/// Whether the key is about the cluster, and not about the store that it comes from.
pub(crate) fn is_loaded(key: &str) -> bool {
    let Some(own) = key.strip_prefix(OWN_KEYS) else { return true };
    own != "revision-offset" && !own.starts_with("store/") && !own.starts_with("fences/")
}

/// A key that may be anything, for a message.
fn shortened(key: &str) -> String {
    key.chars().take(100).collect()
}

fn checked(one: KeyValue, loaded: &Loaded) -> Result<KeyValue, StoreError> {
    if !one.key.starts_with('/') || one.key.len() > MAX_KEY {
        return Err(LoadError::Key(shortened(&one.key)).into());
    }
    let KeyValue { created, modified, .. } = one;
    if created == 0 || created > modified || modified > loaded.revision {
        let (key, exported) = (one.key, loaded.revision);
        return Err(LoadError::Revisions { key, created, modified, exported }.into());
    }
    if one.key == format::FORMAT_KEY {
        format::check(&one.value)?;
    }
    Ok(one)
}

#[cfg(test)]
mod tests;
