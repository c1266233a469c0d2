//! Subresources that take over the connection: logs, exec, attach, port-forward, proxy.

use super::context::Context;
use super::request_body::RequestBody;
use super::respond::Body;
use async_trait::async_trait;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use http::{Method, Request, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Connectors by resource and subresource.
pub type Connectors = HashMap<(String, String), Arc<dyn Connector>>;

/// A subresource that takes over the connection.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Checks the request and returns its options as the object for admission, which may change them. `None` for requests
    /// that only read: they skip admission.
    async fn options(
        &self,
        context: &Context,
        kind: &Kind,
        method: &Method,
    ) -> Result<Option<Value>, ApiError>;

    /// Serves the request with the admitted options.
    async fn connect(
        &self,
        context: &Context,
        kind: &Kind,
        options: Option<Value>,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError>;
}
