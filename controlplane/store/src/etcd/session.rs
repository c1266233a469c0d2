//! A key of this server that its creations depend on. A creation whose answer was lost may still arrive, much later, when the
//! object was created and deleted again. Changing the key makes sure that it fails. Other writes expect a revision that never
//! comes back.

use super::{attempt::QUICK, endpoints::Endpoints, error::EtcdError, keyspace::Keyspace};
use etcd_client::{Client, PutOptions};
use std::sync::atomic::{AtomicI64, Ordering};

/// etcd removes the key this long after its last change. No request is under way for so long.
const KEPT_SECONDS: i64 = 3600;

/// The key of one process.
pub(super) struct Session {
    pub key: String,
    /// Its revision of etcd; 0 while it does not exist.
    at: AtomicI64,
    renewing: tokio::sync::Mutex<()>,
}

impl Session {
    pub fn new(keys: &Keyspace) -> Self {
        let key = keys.key(&format!("/coracle/store/sessions/{}", uuid::Uuid::new_v4()));
        Self { key, at: AtomicI64::default(), renewing: tokio::sync::Mutex::default() }
    }

    /// The revision that a creation expects.
    pub fn at(&self) -> i64 {
        self.at.load(Ordering::Acquire)
    }

    /// Takes over the revision that etcd has.
    pub fn found(&self, at: i64) {
        self.at.store(at, Ordering::Release);
    }

    /// Makes sure that no creation that expects `used` can happen any more.
    pub async fn end(&self, endpoints: &Endpoints, used: i64) -> Result<(), EtcdError> {
        let _guard = self.renewing.lock().await;
        if self.at() != used {
            return Ok(());
        }
        let put = |mut client: Client| async move {
            let lease = client.lease_grant(KEPT_SECONDS, None).await?.id();
            client.put(self.key.as_str(), "", Some(PutOptions::new().with_lease(lease))).await
        };
        let answer = endpoints.read(QUICK, put).await?;
        let header = answer.header().ok_or(EtcdError::NoRevision)?;
        endpoints.note_term(header.raft_term());
        self.found(header.revision());
        Ok(())
    }
}
