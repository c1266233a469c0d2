//! Writes under the fence of an election. The store compares the fence in the transaction of the write; who finds out that it
//! does not hold any more tells everybody who has it.

use super::api::Api;
use super::objects::store_failed;
use bytes::Bytes;
use coracle_client::fence::{self, Fence};
use coracle_fields::coordination::v1::Lease;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use coracle_store::{Durability, Revision, Store, StoreError, Write};
use serde_json::json;

/// How often a fence is taken again when another candidate was faster; it needs the Lease for that, so it soon gives up.
const TRIES: usize = 3;

/// Writes if the fence holds, and without one always. A fence that has expired here is not sent to the store: the write would
/// be stored if no other candidate has noticed yet.
pub(super) async fn write(
    store: &dyn Store,
    write: Write,
    fence: Option<&Fence>,
) -> Result<Revision, StoreError> {
    let Some(fence) = fence else { return store.write(write).await };
    let key = fence::key(fence.election());
    if fence.check().is_err() {
        return Err(StoreError::Fenced(key));
    }
    let held = coracle_store::Fence { key, modified: fence.revision() };
    let written = store.write(Write { fence: Some(held), ..write }).await;
    if matches!(written, Err(StoreError::Fenced(_))) {
        fence.lose();
    }
    written
}

/// What a caller is told about a write that failed for a reason that is not its object.
pub(super) fn write_failed(error: StoreError, fence: Option<&Fence>) -> ApiError {
    let (StoreError::Fenced(_), Some(fence)) = (&error, fence) else { return store_failed(error) };
    let why = fence.check().err().map_or_else(|| error.to_string(), |why| why.to_string());
    let message = format!("the leader of the election {:?} may not write any more: {why}", fence.election());
    ApiError::new(409, "Conflict", message)
}

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
