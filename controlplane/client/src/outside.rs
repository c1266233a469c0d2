//! What control loops ask of others than the API: nodes, aggregated API servers, admission. The server implements it.

use crate::user::User;
use async_trait::async_trait;
use coracle_kinds::object::Owner;
use std::collections::BTreeMap;
use tokio::sync::OwnedRwLockWriteGuard;

/// The nodes' own disks.
#[async_trait]
pub trait Disks: Send + Sync {
    /// Removes what a node has of a volume; nothing there is no error. Why something is left.
    async fn remove(&self, node: &str, volume: &str) -> Result<(), String>;
}

/// What is left in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many objects, by `resource.group`.
    pub resources: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// Groups and versions that do not say what they have.
    pub stale: Vec<String>,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// What aggregated API servers keep.
#[async_trait]
pub trait Elsewhere: Send + Sync {
    /// Deletes all that they keep in a namespace, in a user's name; says what is still there.
    async fn empty(&self, namespace: &str, user: &User) -> Left;

    /// Whether an object is there that one of them keeps, with this uid, for something that it owns in `namespace` (empty:
    /// in none). Nothing is known about what nobody serves, or nobody answers for.
    async fn keeps(&self, owner: &Owner, namespace: &str, user: &User) -> Option<Result<bool, String>>;
}

/// Shares of quotas that admission charged and that are not stored yet.
#[async_trait]
pub trait Charges: Send + Sync {
    /// Waits until nothing of this server is charged to a namespace and not stored, and keeps it so.
    async fn still(&self, namespace: &str) -> OwnedRwLockWriteGuard<()>;

    /// Forgets a namespace that has no quota any more.
    fn forget(&self, namespace: &str);
}
