//! Writes under the fence of an election. The store compares the fence in the transaction of the write; who finds out that it
//! does not hold any more tells everybody who has it.

use super::objects::store_failed;
use coracle_client::fence::{self, Fence};
use coracle_proto::status::ApiError;
use coracle_store::{Revision, Store, StoreError, Write};

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
