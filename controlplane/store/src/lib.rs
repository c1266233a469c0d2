//! The store: one ordered key space with one global revision. It knows no kinds and no HTTP.
//!
//! An acknowledged write with [`Durability::Sync`] survives a crash. Every write gets its own revision, greater than
//! all before it; watchers see each revision once and in order.
//!
//! Depends on no other crate of the control plane.

// A test makes a descriptor of the journal fail.
#![cfg_attr(not(test), forbid(unsafe_code))]

// Failures that make a store unavailable.
mod unhealthy;
// Everything at one revision.
mod export;
// Sizes and members, for operators.
mod status;
// The embedded engine: one process, one disk.
pub mod embedded;
// etcd v3, shared by several servers.
pub mod etcd;
// Writes that can be paused.
pub mod pause;
// Encryption at rest around either engine.
pub mod encryption;
// Version of the stored format.
pub mod format;
// Which store, as options name it.
mod datastore;
// Opens a store.
mod opening;
// Fills an empty store with the keys of another.
pub mod load;
// Copies a store to another one.
pub mod copy;
// Tests that both engines pass.
#[cfg(test)]
mod conformance_tests;

pub use datastore::{Datastore, DatastoreError};
pub use etcd::EtcdOptions;
pub use export::Export;
pub use opening::{Opening, open, supervised};
pub use status::{Engine, MemberStatus, StoreStatus};
pub use unhealthy::Unhealthy;

use async_trait::async_trait;
use bytes::Bytes;
use embedded::EmbeddedError;
use encryption::EncryptionError;
use etcd::EtcdError;
use format::FormatError;
use futures::stream::BoxStream;
use load::error::LoadError;

/// The position of a write in the store's single history; the first is 1.
pub type Revision = u64;

/// A key with its value and the revisions at which it was made and last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// `/registry/<resource>/<namespace>/<name>`.
    pub key: String,
    /// The stored bytes.
    pub value: Bytes,
    /// Revision of the put that created the key.
    pub created: Revision,
    /// Revision of the last put.
    pub modified: Revision,
}

/// Whether a write must be on disk before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk before the reply.
    Sync,
    /// Soon on disk; a crash may lose the last moments. Leases and Events only.
    Lazy,
}

/// Keys under this prefix belong to the store and to the servers. The API never serves them.
pub const OWN_KEYS: &str = "/coracle/";

/// A condition on another key: whoever writes with a fence that is no longer at its revision has lost the right to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The key of the fence.
    pub key: String,
    /// The `modified` revision that the fence must have; 0 means that it must not exist.
    pub modified: Revision,
}

/// A compare-and-swap on one key.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key.
    pub key: String,
    /// The `modified` revision the key must have now; 0 means that it must not exist.
    pub expect: Revision,
    /// The new value, or `None` to delete.
    pub value: Option<Bytes>,
    /// How soon it must be on disk.
    pub durability: Durability,
    /// Checked together with `expect`.
    pub fence: Option<Fence>,
}

/// One change, as a watcher sees it.
#[derive(Debug, Clone)]
pub struct Change {
    /// The revision of this change.
    pub revision: Revision,
    /// The key that changed.
    pub key: String,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// The `created` revision of the key (of the deleted one for a delete).
    pub created: Revision,
}

/// An item of a watch.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// A key changed.
    Change(Change),
    /// Progress notification: nothing with the watched prefix changed up to this revision. Revisions of other keys never
    /// appear in the watch, so without it a reader could wait forever.
    Progress(Revision),
}

/// A revision from which history is complete up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryStart {
    /// The revision to begin after.
    pub from: Revision,
    /// Up to this revision a crash may have lost lazy writes that were already seen by watchers; 0 if none.
    pub lost: Revision,
}

/// A watch in order and without end.
pub type Watch = BoxStream<'static, Result<WatchItem, StoreError>>;

/// Why a request to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The key is not at the expected revision; holds what is there now.
    #[error("the key is not at the expected revision")]
    Conflict(Option<KeyValue>),
    /// The fence of the write is not at its revision any more. Nothing was written.
    #[error("the fence {0} has changed")]
    Fenced(String),
    /// The revision is older than what the store still holds.
    #[error("revision {0} is compacted")]
    Compacted(Revision),
    /// The revision is not reached yet.
    #[error("revision {0} is in the future")]
    Future(Revision),
    /// The newest value of a key is encrypted, and no configured key decrypts it.
    #[error("{0} is encrypted in the store, and no key of --encryption-provider-config opens it")]
    NoDecryptionKey(String),
    /// The embedded engine failed; whether anything was written is not known.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// etcd failed; whether anything was written is not known.
    #[error(transparent)]
    Etcd(EtcdError),
    /// A value cannot be encrypted or decrypted.
    #[error("{key}: {why}")]
    Encryption {
        /// The key of the value.
        key: String,
        /// What is wrong with it, or with the service that has the key.
        why: EncryptionError,
    },
    /// The keys of `--encryption-provider-config` cannot be used.
    #[error(transparent)]
    Keys(#[from] EncryptionError),
    /// The thread that worked for the caller has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
    /// The options do not name a store that can be opened.
    #[error(transparent)]
    Datastore(#[from] DatastoreError),
    /// The format of the store cannot be used.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The keys of another store cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A watch ended without an error.
    #[error("the watch ended")]
    Ended,
    /// The task that follows the store for all readers has stopped.
    #[error("the watch on the store has stopped")]
    Stopped,
    /// The store does not take writes, or cannot read what it has. Nothing was written.
    #[error("the store is not available: {0}")]
    Unavailable(Unhealthy),
    /// Writes are paused, because the store is being copied to another one. Nothing was written.
    #[error("writes are paused while the store is copied to another one")]
    Paused,
}

/// An ordered, revisioned key space.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a directory");
/// # tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
/// use coracle_store::{Datastore, Durability, Store, Write, open};
/// let store = open(&Datastore::Embedded, dir.path()).await?;
/// let (key, value) = ("/registry/a".to_owned(), Some("1".into()));
/// let write = Write { key, expect: 0, value, durability: Durability::Sync, fence: None };
/// let written = store.write(write).await?;
/// let found = store.get("/registry/a").await?.expect("it was written");
/// assert_eq!((found.modified, &found.value[..]), (written, &b"1"[..]));
/// # Ok::<(), coracle_store::StoreError>(())
/// # }).expect("the store works");
/// ```
#[async_trait]
pub trait Store: Send + Sync {
    /// The newest value of a key.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;

    /// Every key with the prefix, in key order, at one revision, which is returned too; `None` means the newest.
    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError>;

    /// Every key with the prefix at one revision, in key order, page by page: neither memory nor writers are held up by a
    /// large store. Values are as stored, so that encrypted ones stay encrypted.
    async fn export(&self, prefix: &str) -> Result<Export, StoreError>;

    /// Writes if the key is at the expected revision and returns the revision of the write. Deleting a key that is
    /// not there is a conflict. After an engine error the write may or may not have happened.
    async fn write(&self, write: Write) -> Result<Revision, StoreError>;

    /// All changes with the prefix after `after`, in order, without end. Ends with an error item when the watcher
    /// cannot go on (compacted or connection lost); the caller ranges again.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError>;

    /// The newest revision, as a linearizable read: every write acknowledged before the call is at or below it.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// The revision after which a watch returns the last `changes` changes, at most.
    async fn history_start(&self, changes: u64) -> Result<HistoryStart, StoreError>;

    /// Forgets history at or below the revision; newest values stay.
    async fn compact(&self, upto: Revision) -> Result<(), StoreError>;

    /// Flushes what was written lazily; called at shutdown.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Whether writes work, as far as is known without writing.
    async fn health(&self) -> Result<(), Unhealthy>;

    /// Sizes, members and problems, for operators.
    async fn status(&self) -> Result<StoreStatus, StoreError>;
}
