//! Begins a term of an election: whoever holds its Lease takes the fence, so that writes of the holder before it are refused.

use super::api::Api;
use super::objects::store_failed;
use bytes::Bytes;
use coracle_client::fence;
use coracle_fields::coordination::v1::Lease;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use coracle_store::{Durability, Revision, StoreError, Write};
use serde_json::json;

/// How often a fence is taken again when another candidate was faster; it needs the Lease for that, so it soon gives up.
const TRIES: usize = 3;

impl Api {
    /// Begins a term of the election by `lease`: rewrites the election's key, if the Lease has not changed since.
    pub(super) async fn take_fence(&self, lease: &Object) -> Result<Revision, ApiError> {
        let registry = &self.objects.registry;
        let kind = registry.preferred("coordination.k8s.io", "leases").ok_or_else(ApiError::no_such_path)?;
        let (namespace, name) = (&lease.meta.namespace, &lease.meta.name);
        let holder = lease.doc().view::<Lease>().spec().holder_identity().text().to_owned();
        let value = Bytes::from(json!({"holder": holder}).to_string());
        for _ in 0..TRIES {
            let key = fence::key(name);
            let before = self.store.get(&key).await.map_err(store_failed)?;
            let term = Write {
                key,
                expect: before.map_or(0, |before| before.modified),
                value: Some(value.clone()),
                durability: Durability::Sync,
                fence: Some(coracle_store::Fence {
                    key: kind.key(namespace, name),
                    modified: lease.revision,
                }),
            };
            match self.store.write(term).await {
                Ok(revision) => return Ok(revision),
                Err(StoreError::Conflict(_)) => {}
                Err(StoreError::Fenced(_)) => break,
                Err(error) => return Err(store_failed(error)),
            }
        }
        Err(ApiError::modified(&kind.group, &kind.plural, name))
    }
}
