//! What the objects look like.

use super::chain::Context;
use super::respond::Body;
use crate::registry::index::Registry;
use coracle_proto::status::ApiError;
use http::Response;
use std::sync::Arc;

/// The OpenAPI documents.
pub struct OpenApi {
    _registry: Arc<Registry>,
}

impl OpenApi {
    /// Of a table of kinds.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { _registry: registry }
    }

    /// Serves `/openapi/…`.
    pub fn serve(&self, _path: &str, _context: &Context) -> Result<Response<Body>, ApiError> {
        Err(ApiError::no_such_path())
    }
}
