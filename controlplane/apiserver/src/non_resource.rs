//! Paths of the servers themselves under `/coracle/v1/`: joining of servers, their tokens, status and upkeep.

use super::context::Context;
use super::request_body::RequestBody;
use super::respond::Body;
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use http::{Request, Response};

/// A server joins here.
pub const JOIN: &str = "/coracle/v1/join";
/// It first gets a challenge here.
pub const CHALLENGE: &str = "/coracle/v1/join/challenge";

/// Serves non-resource paths. The user is authenticated and may use the path, unless the path [`is_open`].
#[async_trait]
pub trait NonResource: Send + Sync {
    /// Whether a path is one of its own.
    fn takes(&self, path: &str) -> bool;

    /// Answers a request.
    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError>;
}

/// An extension of responses whose body must not be in the audit log.
#[derive(Debug, Clone, Copy)]
pub struct SecretBody;

/// Whether everybody may use a path: who serves it asks for a proof of its own.
pub fn is_open(path: &str) -> bool {
    matches!(path, JOIN | CHALLENGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_joining_is_open() {
        assert!(is_open("/coracle/v1/join") && is_open("/coracle/v1/join/challenge"));
        for path in [
            "/coracle/v1/join/",
            "/coracle/v1/join/x",
            "/coracle/v1/server-tokens",
            "/coracle/v1",
            "/coracle/v1/joined",
        ] {
            assert!(!is_open(path), "{path}");
        }
    }
}
