//! What some kinds need besides their pure strategy: allocations that must not happen twice, and subresources that are
//! actions. Rows register here by name, so that the pipeline knows no kind.

use super::admission::Admitted;
use super::api::Api;
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
    /// Who asks.
    pub user: &'a User,
    /// The parent's kind.
    pub kind: &'a Kind,
    /// Namespace.
    pub namespace: &'a str,
    /// Name of the parent.
    pub name: &'a str,
    /// The subresource; empty for a resource that is never stored.
    pub subresource: &'a str,
    /// `get`, `create`, `update` …
    pub verb: &'a str,
    /// Content type of the body; tells patches apart.
    pub content_type: &'a str,
    /// The decoded body, null when there was none.
    pub body: Value,
    /// Options of the request.
    pub options: &'a WriteOptions,
    /// Set by [`Api::act`] for creates: admission let the body through, as it is now.
    pub admitted: Option<Admitted>,
}

/// A subresource (`pods/binding`) or a resource that is never stored (`tokenreviews`, with an empty subresource).
#[async_trait]
pub trait Action: Send + Sync {
    /// Whether a create only answers a question, such as an access review: admission is not asked, as upstream.
    fn only_answers(&self) -> bool {
        false
    }

    /// Fills in what the client left out of a create, before admission sees it.
    fn fill(&self, _body: &mut Value) {}

    /// Does it. Called by [`Api::act`] only, which asks admission first.
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError>;
}

/// Another form of an object that a subresource shows and takes, such as its Scale. Admission sees it instead of the object.
pub trait Facet: Send + Sync {
    /// This form of the object.
    fn show(&self, object: &Value) -> Value;
    /// The object with what the changed form says.
    fn merge(&self, object: &Value, form: &Value) -> Result<Value, ApiError>;
}

/// A subresource that takes over the connection: logs, exec, attach, port-forward, proxy.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Checks the request and says what it asks for, as the object that admission sees and may change. `None` for what only
    /// reads: admission is not asked about that.
    async fn options(
        &self,
        server: &std::sync::Arc<super::chain::Server>,
        context: &super::chain::Context,
        kind: &Kind,
        method: &http::Method,
    ) -> Result<Option<Value>, ApiError>;

    /// Answers the request itself, as the admitted options say.
    async fn connect(
        &self,
        server: &std::sync::Arc<super::chain::Server>,
        context: &super::chain::Context,
        kind: &Kind,
        options: Option<Value>,
        request: http::Request<crate::inbound::Inbound>,
    ) -> Result<http::Response<super::respond::Body>, ApiError>;
}
