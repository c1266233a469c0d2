//! Context of a request in the handler chain.

use super::request_info::RequestInfo;
use coracle_client::audit_annotations::AuditAnnotations;
use coracle_client::user::User;
use http::HeaderMap;

/// Context of a request in the handler chain.
pub struct Context {
    /// Verb, resource, namespace and name.
    pub info: RequestInfo,
    /// The query.
    pub query: Vec<(String, String)>,
    /// Who asks.
    pub user: User,
    /// Its headers, without credentials.
    pub headers: HeaderMap,
    /// Annotations of the audit event.
    pub audit_annotations: AuditAnnotations,
}

impl Context {
    /// A header's text, empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}
