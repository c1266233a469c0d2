//! Fills an empty store with the keys of another, from a backup or a copy.
//!
//! The embedded engine keeps the revisions of the keys. etcd counts its own: it gets an offset, so that the revisions that
//! clients see are greater than all before. Either store begins compacted, and watchers of the past list again.

use crate::{
    Datastore, DatastoreError, KeyValue, OWN_KEYS, Opening, Revision, StoreError, embedded, etcd, format,
};
use futures::{Stream, StreamExt, stream::BoxStream};

/// Revisions that a restore skips: more than were written since the backup.
pub const RESTORE_BUMP: Revision = 1_000_000;
/// Above it keys of the embedded log could not be told from those of its index.
const MAX_REVISION: Revision = 1 << 55;
const MAX_KEY: usize = 4096;

/// Where the keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// The revision at which they were exported.
    pub revision: Revision,
    /// Added to it: the new store continues behind the sum.
    pub bump: Revision,
}

/// What was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of keys.
    pub keys: u64,
    /// The revision of the store now. Everything before it is compacted.
    pub revision: Revision,
}

/// Why keys cannot be loaded. The store is as empty as before, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store has keys already.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// Something failed and left keys behind.
    #[error("a restore or copy into {0} was not finished: remove its keys and start over")]
    Unfinished(String),
    /// A key that no export has.
    #[error("key {0:?} cannot be loaded: it does not begin with / or is too long")]
    Key(String),
    /// Keys of an export are sorted.
    #[error("key {0:?} cannot be loaded: it is not behind the key before it")]
    Order(String),
    /// Revisions that no export has.
    #[error("{key}: created at revision {created}, modified at {modified}, exported at {exported}")]
    Revisions {
        /// The key.
        key: String,
        /// Its revisions.
        created: Revision,
        /// Its last revision.
        modified: Revision,
        /// The revision of all.
        exported: Revision,
    },
    /// Two keys of the same revision.
    #[error("{0} has the revision of another key")]
    Twice(String),
    /// The revision is beyond what a store can count.
    #[error("revision {0} is too great")]
    TooGreat(Revision),
    /// The keys end with an error.
    #[error("the keys to be loaded cannot be read")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Loaded {
    /// The last revision that is compacted in the new store.
    pub(crate) fn floor(&self) -> Result<Revision, LoadError> {
        let sum = self.revision.saturating_add(self.bump);
        if sum > MAX_REVISION { Err(LoadError::TooGreat(sum)) } else { Ok(sum) }
    }
}

/// Keys that were checked.
pub(crate) type Keys<'a> = BoxStream<'a, Result<KeyValue, StoreError>>;

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
