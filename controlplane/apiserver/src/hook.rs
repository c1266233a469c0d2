//! Extension points of kinds besides their pure strategy: allocations around a write, and the forms of subresources. They
//! are registered by name, so that the write pipeline knows no kind.

use super::fenced;
use super::objects::Objects;
use async_trait::async_trait;
use coracle_client::fence::Fence;
use coracle_kinds::registry::index::Registry;
use coracle_proto::status::ApiError;
use coracle_store::{Revision, Store, StoreError, Write};
use serde_json::Value;

/// Where hooks keep what they allocate.
#[derive(Clone, Copy)]
pub struct HookContext<'a> {
    /// Objects that decide what may be allocated.
    pub objects: &'a Objects,
    /// The kinds, for the keys of their objects.
    pub registry: &'a Registry,
    /// Where allocations are stored.
    pub store: &'a dyn Store,
    /// The fence of the write that the allocation is for.
    pub fence: Option<&'a Fence>,
}

impl HookContext<'_> {
    /// Stores an allocation; refused like the write that it is for when the fence does not hold.
    pub(crate) async fn allocate(&self, write: Write) -> Result<Revision, StoreError> {
        fenced::write(self.store, write, self.fence).await
    }
}

/// Side effects around the store: addresses, ports, names that only one object may hold.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Before a create is stored; may change the object.
    async fn before_create(
        &self,
        context: HookContext<'_>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError>;
    /// After a create could not be stored: gives back what `before_create` took.
    async fn create_failed(&self, context: HookContext<'_>, object: &Value);
    /// Before a change is stored; may change the object.
    async fn before_update(
        &self,
        context: HookContext<'_>,
        object: &mut Value,
        old: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError>;
    /// After a change was stored (`stored`) or was not: gives back what is no longer held.
    async fn update_done(&self, context: HookContext<'_>, object: &Value, old: &Value, stored: bool);
    /// After the object is gone.
    async fn after_delete(&self, context: HookContext<'_>, old: &Value);
}

/// The form of an object that a subresource reads and writes, such as its Scale. Admission gets this form.
pub trait Projection: Send + Sync {
    /// Projects the object to this form.
    fn project(&self, object: &Value) -> Value;
    /// Merges the changed form into the object.
    fn merge(&self, object: &Value, form: &Value) -> Result<Value, ApiError>;
}
