//! The API for callers in the same process. The API server implements it; controllers, the scheduler and tests use only this
//! trait.

use super::patch::Patch;
use crate::options::{DeleteOptions, WriteOptions};
use crate::user::User;
use async_trait::async_trait;
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_trace::{Recorder, Scope};
use serde_json::Value;
use std::sync::Arc;

/// Who writes what where, and with which options.
pub struct Target<'a> {
    /// Who.
    pub user: &'a User,
    /// What kind.
    pub kind: &'a Kind,
    /// Where; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Which; empty for creates.
    pub name: &'a str,
    /// `""`, `status`, or another subresource that changes the object itself.
    pub subresource: &'a str,
    /// How.
    pub options: &'a WriteOptions,
    /// Whether the change is an apply, which settles the ownership of fields itself.
    pub applied: bool,
}

/// Computes the new object from the current one; called again after a write conflict.
pub type Change<'a> = dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync + 'a;

/// What a call gives back.
#[derive(Clone)]
pub enum Reply {
    /// A stored object, with the HTTP status.
    Object(u16, Arc<Object>),
    /// Any other value, with the HTTP status.
    Value(u16, Value),
}

impl Reply {
    /// The reply as a tree.
    pub fn value(&self) -> Value {
        match self {
            Self::Object(_, object) => object.value(),
            Self::Value(_, value) => value.clone(),
        }
    }
}

/// A pod and the node it is to get.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
    /// The pod's uid: another pod of the same name gets no node.
    pub uid: &'a str,
    /// The node's name.
    pub node: &'a str,
    /// What the write is recorded below, such as the attempt that chose the node.
    pub scope: Scope,
}

/// The API without HTTP. Writes and calls are audited, but not authorized: callers are parts of the server.
#[async_trait]
pub trait Pipeline: Send + Sync {
    /// The kinds.
    fn registry(&self) -> &Arc<Registry>;

    /// Records what callers do and why.
    fn recorder(&self) -> Recorder {
        Recorder::OFF
    }

    /// The objects of a kind; `None` when it is not stored.
    fn cache(&self, kind: &Kind) -> Option<Arc<Cache>>;

    /// The same with objects whose initializers are pending.
    fn whole_cache(&self, kind: &Kind) -> Option<Arc<Cache>>;

    /// An object in the version of `kind`, as a tree.
    async fn view(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError>;

    /// The newest state of an object.
    async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError>;

    /// The same, also while its initializers are pending.
    async fn get_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError>;

    /// Stores a new object.
    async fn create(&self, target: &Target<'_>, object: Value) -> Result<Arc<Object>, ApiError>;

    /// Changes an object by a function of its current state; called again when somebody else was faster, unless what it
    /// returns has a resource version.
    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Arc<Object>, ApiError>;

    /// Sets the replicas of an object through its `/scale`.
    async fn scale(&self, target: &Target<'_>, replicas: i64) -> Result<Arc<Object>, ApiError>;

    /// Patches an object; an apply creates it if there is none.
    async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Arc<Object>, ApiError>;

    /// Removes an object, or begins to.
    async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Arc<Object>, ApiError>;

    /// Deletes the stored objects of a kind in a namespace that cannot be read.
    async fn remove_unreadable(&self, target: &Target<'_>) -> Result<(), ApiError>;

    /// Gives pods their nodes, all at once; the answers are in order.
    async fn bind(
        &self,
        user: &User,
        options: &WriteOptions,
        placements: &[Placement<'_>],
    ) -> Vec<Result<(), ApiError>>;

    /// Begins a term of the election by `lease`; returns the revision of its fence. A conflict when the Lease has changed.
    async fn take_fence(&self, lease: &Object) -> Result<u64, ApiError>;

    /// Calls an action: a subresource such as `pods/binding`, or a resource that is not stored.
    async fn call(&self, target: &Target<'_>, verb: &str, body: Value) -> Result<Reply, ApiError>;
}
