//! Locks by name, held across calls to drivers.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

/// A lock for each name that is in use.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Arc<Gate<()>>>>);

impl Locks {
    /// Waits for the lock of this name.
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let gate = {
            let mut all = self.0.lock();
            all.retain(|_, gate| Arc::strong_count(gate) > 1);
            all.entry(name.to_owned()).or_default().clone()
        };
        gate.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holder_per_name_and_nothing_kept() {
        let locks = Locks::default();
        let held = locks.lock("a").await;
        let _other = locks.lock("b").await;
        let second = locks.lock("a");
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        drop(held);
        drop(second.await);
        let _c = locks.lock("c").await;
        assert_eq!(locks.0.lock().len(), 2, "b and c");
    }
}
