//! Usage that quota admission charged for writes that are not stored yet.

use async_trait::async_trait;
use tokio::sync::OwnedRwLockWriteGuard;

/// Charges of this server's quota admission, by namespace.
#[async_trait]
pub trait QuotaCharges: Send + Sync {
    /// Waits until every charged write in a namespace is stored; none is charged while the lock is held.
    async fn lock(&self, namespace: &str) -> OwnedRwLockWriteGuard<()>;

    /// Drops the state of a namespace without a quota.
    fn forget(&self, namespace: &str);
}
