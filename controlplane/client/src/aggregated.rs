//! Objects that aggregated API servers store. The API server implements access to them for the namespace controller, the
//! garbage collector and the autoscaler.

use crate::user::User;
use async_trait::async_trait;
use coracle_kinds::object::Owner;
use serde_json::Value;
use std::collections::BTreeMap;

/// Objects that remain in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RemainingContent {
    /// Number of objects, by `resource.group`.
    pub resources: BTreeMap<String, usize>,
    /// Number of objects that each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// Groups and versions whose discovery is not available.
    pub stale: Vec<String>,
    /// Failed deletions and lists.
    pub errors: Vec<String>,
}

/// Why an aggregated API server did not say whether an owner exists.
#[derive(Debug, thiserror::Error)]
pub enum OwnerLookupError {
    /// The server was not reached.
    #[error(transparent)]
    Unreachable(Box<dyn std::error::Error + Send + Sync>),
    /// It answered with neither the object nor `NotFound`.
    #[error("{path}: {status}")]
    Refused {
        /// The requested path.
        path: String,
        /// The answer, such as `403 Forbidden`.
        status: String,
    },
}

/// What is read from an aggregated API server.
#[derive(Debug, Clone, Copy)]
pub struct AggregatedRead<'a> {
    /// API group.
    pub group: &'a str,
    /// Versions that the caller understands, the best first.
    pub versions: &'a [&'a str],
    /// Segments of the path below group and version.
    pub path: &'a [&'a str],
    /// Parameters; those without a value are left out.
    pub query: &'a [(&'a str, &'a str)],
}

/// Why nothing was read from an aggregated API server.
#[derive(Debug, thiserror::Error)]
pub enum AggregatedReadError {
    /// The server was not reached.
    #[error("{0}")]
    Unreachable(Box<dyn std::error::Error + Send + Sync>),
    /// It refused, with this message.
    #[error("{0}")]
    Refused(String),
    /// It answered with something else than an object.
    #[error("the answer is not a JSON object")]
    NotAnObject,
}

/// Access to the objects of aggregated API servers.
#[async_trait]
pub trait AggregatedObjects: Send + Sync {
    /// Deletes the objects in a namespace as `user`; returns those that remain.
    async fn delete_in_namespace(&self, namespace: &str, user: &User) -> RemainingContent;

    /// Whether the owner of an object in `namespace` (empty: a cluster-scoped object) exists with the same uid. `None` when no
    /// available aggregated API server serves its kind.
    async fn owner_exists(
        &self,
        owner: &Owner,
        namespace: &str,
        user: &User,
    ) -> Option<Result<bool, OwnerLookupError>>;

    /// Reads as `user`. `None` when no available aggregated API server serves one of the versions.
    async fn read(
        &self,
        _request: AggregatedRead<'_>,
        _user: &User,
    ) -> Option<Result<Value, AggregatedReadError>> {
        None
    }
}
