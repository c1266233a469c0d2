//! Why keys cannot be loaded into a store.

use crate::Revision;

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
