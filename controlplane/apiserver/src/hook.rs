//! Extension points of kinds besides their pure strategy: allocations before a write, and subresources that are
//! actions. They are registered by name, so that the write pipeline knows no kind.

use super::admission::Admitted;
use super::api::Api;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::Reply;
use coracle_client::user::User;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// Side effects around the store: addresses, ports, names that only one object may hold.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Before a create is stored; may change the object.
    async fn before_create(&self, api: &Api, object: &mut Value, dry_run: bool) -> Result<(), ApiError>;
    /// After a create could not be stored: gives back what `before_create` took.
    async fn create_failed(&self, api: &Api, object: &Value);
    /// Before a change is stored; may change the object.
    async fn before_update(
        &self,
        api: &Api,
        object: &mut Value,
        old: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError>;
    /// After a change was stored (`stored`) or was not: gives back what is no longer held.
    async fn update_done(&self, api: &Api, object: &Value, old: &Value, stored: bool);
    /// After the object is gone.
    async fn after_delete(&self, api: &Api, old: &Value);
}

/// A call of a subresource.
pub struct Call<'a> {
    /// The server.
    pub api: &'a Api,
    /// The authenticated user.
    pub user: &'a User,
    /// The parent's kind.
    pub kind: &'a Kind,
    /// Namespace.
    pub namespace: &'a str,
    /// Name of the parent.
    pub name: &'a str,
    /// The subresource; empty for a resource that is never stored.
    pub subresource: &'a str,
    /// The verb of the request.
    pub verb: Verb,
    /// Content type of the body; selects the patch format.
    pub content_type: &'a str,
    /// The decoded body; null if there is none.
    pub body: Value,
    /// Options of the request.
    pub options: &'a WriteOptions,
    /// Set by [`Api::run_action`] for creates: the body was admitted.
    pub admitted: Option<Admitted>,
}

/// A subresource (`pods/binding`) or a resource that is never stored (`tokenreviews`, with an empty subresource).
#[async_trait]
pub trait Action: Send + Sync {
    /// Whether a create stores nothing and skips admission, as upstream does for access reviews.
    fn skips_admission(&self) -> bool {
        false
    }

    /// Sets defaults in the body of a create, before admission.
    fn set_defaults(&self, _body: &mut Value) {}

    /// Runs the action. Called only by [`Api::run_action`], after admission.
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError>;
}

/// The form of an object that a subresource reads and writes, such as its Scale. Admission gets this form.
pub trait Projection: Send + Sync {
    /// Projects the object to this form.
    fn project(&self, object: &Value) -> Value;
    /// Merges the changed form into the object.
    fn merge(&self, object: &Value, form: &Value) -> Result<Value, ApiError>;
}

/// A subresource that takes over the connection: logs, exec, attach, port-forward, proxy.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Checks the request and returns its options as the object for admission, which may change them. `None` for requests
    /// that only read: they skip admission.
    async fn options(
        &self,
        server: &std::sync::Arc<super::chain::Server>,
        context: &super::chain::Context,
        kind: &Kind,
        method: &http::Method,
    ) -> Result<Option<Value>, ApiError>;

    /// Serves the request with the admitted options.
    async fn connect(
        &self,
        server: &std::sync::Arc<super::chain::Server>,
        context: &super::chain::Context,
        kind: &Kind,
        options: Option<Value>,
        request: http::Request<crate::request_body::RequestBody>,
    ) -> Result<http::Response<super::respond::Body>, ApiError>;
}
