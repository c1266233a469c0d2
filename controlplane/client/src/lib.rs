//! The in-process client, and the types and traits that the API server and its in-process callers share.
//!
//! Controllers and the scheduler write through the same pipeline as any client, with their own identity, and read from the
//! same caches. The caches show a write as soon as it returned.
//!
//! May depend on `coracle-kinds` and `coracle-trace`. It does not depend on the API server: `coracle-apiserver` implements
//! [`pipeline::Pipeline`], and controllers, scheduler and tests only know the trait.

#![forbid(unsafe_code)]

// Annotations of the audit event of a request.
pub mod audit_annotations;
// Patches.
pub mod patch;
// The API for callers in the same process: `trait Pipeline`.
pub mod pipeline;
// Volume directories on nodes: `trait NodeVolumes`.
pub mod node_volumes;
// Objects of aggregated API servers: `trait AggregatedObjects`.
pub mod aggregated;
// Usage charged by quota admission: `trait QuotaCharges`.
pub mod quota_charges;
// Node ports that are taken for Services: `trait NodePorts`.
pub mod node_ports;
// Metrics and pending pods of control loops: `trait MetricsSource`, `trait PendingPods`.
pub mod diagnostics;
// Labels and namespace of the identity Leases of API servers.
pub mod identity_lease;
// The fence of a leader: who may write for an election.
pub mod fence;
// The user of a request.
pub mod user;
// What the client of a write says about its trace.
pub mod trace_options;
// Options of reads, writes and deletes: the query parameters.
pub mod options;

use crate::fence::{Fence, FenceError};
use crate::options::{DeleteOptions, WriteOptions};
use crate::user::User;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_trace::Recorder;
use patch::Patch;
use pipeline::{Pipeline, Placement, Reply, Target};
use serde_json::Value;
use std::sync::Arc;

/// A client with an identity; cheap to clone.
///
/// ```no_run
/// # async fn example(client: coracle_client::Client) -> Result<(), coracle_proto::status::ApiError> {
/// use serde_json::json;
///
/// let client = client.controller("example-controller");
/// let kind = client.kind("", "configmaps");
/// let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"port": "80"}});
/// client.create(&kind, "default", object).await?;
/// client.modify(&kind, "default", "web", "", |object| object["data"]["port"] = json!("81")).await?;
/// let stored = client.get(&kind, "default", "web").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    api: Arc<dyn Pipeline>,
    user: Arc<User>,
    options: Arc<WriteOptions>,
}

impl Client {
    /// A client that acts as `user`; the user's last name part is its field manager, and the server's is `kube-apiserver`.
    pub fn new(api: Arc<dyn Pipeline>, user: User) -> Self {
        let manager = match user.name.as_str() {
            "system:apiserver" => "kube-apiserver",
            name => name.rsplit(':').next().unwrap_or(name),
        };
        let manager = manager.to_owned();
        let options = WriteOptions { field_manager: manager, ..WriteOptions::default() };
        Self { api, user: Arc::new(user), options: Arc::new(options) }
    }

    /// The same server, as another user; with the same fence.
    pub fn acting_as(&self, user: User) -> Self {
        let other = Self::new(self.api.clone(), user);
        match &self.options.fence {
            Some(fence) => other.fenced(fence.clone()),
            None => other,
        }
    }

    /// The same client, whose writes are stored only while the fence holds.
    #[must_use]
    pub fn fenced(&self, fence: Fence) -> Self {
        let options = WriteOptions { fence: Some(fence), ..WriteOptions::clone(&self.options) };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// Whether the fence of this client holds, as far as is known here; to be asked before acting outside of the store, which
    /// checks fences itself.
    pub fn check_fence(&self) -> Result<(), FenceError> {
        self.options.fence.as_ref().map_or(Ok(()), Fence::check)
    }

    /// Begins a term of the election by `lease`, for its holder: from now on writes with fences of earlier terms are refused.
    /// Returns the revision of the new fence. A conflict when the Lease has changed since it was read.
    pub async fn take_fence(&self, lease: &Object) -> Result<u64, ApiError> {
        self.api.take_fence(lease).await
    }

    /// The same client with another field manager: who owns the fields that it sets.
    #[must_use]
    pub fn managing_as(&self, manager: &str) -> Self {
        let options =
            WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::clone(&self.options) };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// The same client, whose calls do not wait for audit sinks: a sink that is behind does not get their events. For renewals
    /// of Leases, whose holder counts as dead when it is late.
    #[must_use]
    pub fn skipping_slow_audit(&self) -> Self {
        let options = WriteOptions { skips_slow_audit: true, ..WriteOptions::clone(&self.options) };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// The same server, as a controller's service account in `kube-system`. The field manager is `kube-controller-manager`: in
    /// Kubernetes the controllers share a process, after which it is named.
    pub fn controller(&self, account: &str) -> Self {
        self.acting_as(User::service_account("kube-system", account)).managing_as("kube-controller-manager")
    }

    /// The server's recorder, for spans of control loops.
    pub fn recorder(&self) -> Recorder {
        self.api.recorder()
    }

    /// The kinds that the server knows.
    pub fn registry(&self) -> &Arc<Registry> {
        self.api.registry()
    }

    /// The row of a resource in its stored version; `None` when the server does not serve it.
    pub fn find_kind(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        self.registry().preferred(group, plural)
    }

    /// The row of a built-in resource.
    ///
    /// # Panics
    /// When the resource is not in the table, which is a mistake in the program.
    pub fn kind(&self, group: &str, plural: &str) -> Arc<Kind> {
        self.find_kind(group, plural)
            .unwrap_or_else(|| panic!("{plural}.{group} is not in the table of kinds"))
    }

    /// The cache of a kind; `None` when it is not stored, or not any more.
    pub fn find_cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.cache(kind)
    }

    /// The same with objects whose initializers are pending.
    pub fn find_whole_cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.whole_cache(kind)
    }

    /// The cache of a stored kind.
    ///
    /// # Panics
    /// When the kind is not stored, which is a mistake in the program.
    pub fn cache(&self, kind: &Kind) -> Arc<Cache> {
        self.find_cache(kind).unwrap_or_else(|| panic!("{} is not stored", kind.plural))
    }

    fn target<'a>(
        &'a self,
        kind: &'a Kind,
        namespace: &'a str,
        name: &'a str,
        subresource: &'a str,
    ) -> Target<'a> {
        Target {
            user: &self.user,
            kind,
            namespace,
            name,
            subresource,
            options: &self.options,
            applied: false,
        }
    }

    /// The newest state of an object.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.get(kind, namespace, name).await
    }

    /// The same, also while its initializers are pending.
    pub async fn get_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.get_whole(kind, namespace, name).await
    }

    /// An object in the version of `kind`, as a tree.
    pub async fn view(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError> {
        self.api.view(kind, object).await
    }

    /// Creates an object.
    pub async fn create(&self, kind: &Kind, namespace: &str, object: Value) -> Result<Arc<Object>, ApiError> {
        self.api.create(&self.target(kind, namespace, "", ""), object).await
    }

    /// Replaces an object or its `status`; with a resource version in it, a lost race is a conflict.
    pub async fn update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        object: Value,
    ) -> Result<Arc<Object>, ApiError> {
        let target = self.target(kind, namespace, name, subresource);
        self.api.change(&target, &|_| Ok(object.clone())).await
    }

    /// Changes an object by a function of its current state; called again after a write conflict.
    pub async fn modify(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<Arc<Object>, ApiError> {
        let target = self.target(kind, namespace, name, subresource);
        let changed = |current: &Value| {
            let mut new = current.clone();
            change(&mut new);
            // With a resource version a concurrent write would be a conflict instead of a retry.
            PartialObjectMetadata::edit(&mut new).metadata().resource_version().clear();
            Ok(new)
        };
        self.api.change(&target, &changed).await
    }

    /// Sets the replicas of an object through its `/scale`.
    pub async fn scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        replicas: i64,
    ) -> Result<Arc<Object>, ApiError> {
        self.api.scale(&self.target(kind, namespace, name, "scale"), replicas).await
    }

    /// Patches an object or a subresource of it.
    pub async fn patch(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: Patch,
    ) -> Result<Arc<Object>, ApiError> {
        let target = self.target(kind, namespace, name, subresource);
        self.api.patch(&target, &patch).await
    }

    /// Deletes an object, or starts its graceful deletion.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Arc<Object>, ApiError> {
        self.api.remove(&self.target(kind, namespace, name, ""), &options).await
    }

    /// Deletes the stored objects of a kind in a namespace that cannot be read.
    pub async fn delete_unreadable(&self, kind: &Kind, namespace: &str) -> Result<(), ApiError> {
        self.api.remove_unreadable(&self.target(kind, namespace, "", "")).await
    }

    /// Binds pods to nodes in one batch; the results are in the order of `placements`.
    pub async fn bind(&self, placements: &[Placement<'_>]) -> Vec<Result<(), ApiError>> {
        self.api.bind(&self.user, &self.options, placements).await
    }

    /// Calls an action such as `pods/binding` or `pods/eviction`.
    pub async fn call(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: Value,
    ) -> Result<Reply, ApiError> {
        self.api.call(&self.target(kind, namespace, name, subresource), "create", body).await
    }

    /// The list of a resource that is not stored, such as `pods.metrics.k8s.io`.
    pub async fn list_virtual(&self, kind: &Kind, namespace: &str) -> Result<Value, ApiError> {
        Ok(self.api.call(&self.target(kind, namespace, "", ""), "list", Value::Null).await?.value())
    }
}
