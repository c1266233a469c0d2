//! Answers why and when things happened, and takes in spans of nodes: `/coracle/v1/…` and the page at `/ui/…`.

use super::context::Context;
use super::nodes::relay;
use super::request_body::RequestBody;
use super::respond::Body;
use async_trait::async_trait;
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use http::{Request, Response};

pub use super::pending_response::SendPolicy;

const SPANS: &str = "/coracle/v1/spans/";
/// Where API servers ask each other for spans.
pub const BETWEEN_SERVERS: &str = "/coracle/v1/spans";

/// Serves the paths above. The user is authenticated and may use the path; what may be shown of objects is checked here.
#[async_trait]
pub trait Explain: Send + Sync {
    /// Whether a path is one of its own.
    fn takes(&self, path: &str) -> bool;

    /// Answers a request. A body without end has [`SendPolicy::NoTimeout`] in the extensions of its response.
    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError>;
}

/// The node that a path takes the spans of.
pub fn node_of(path: &str) -> Option<&str> {
    path.strip_prefix(SPANS).filter(|node| !node.is_empty() && !node.contains('/'))
}

/// Whether somebody may deliver the spans of a node: the node itself.
pub fn may_deliver(user: &User, node: &str) -> bool {
    user.node() == Some(node)
}

/// Whether a path is where API servers ask each other for spans, which are not filtered.
pub fn is_between_servers(path: &str) -> bool {
    path == BETWEEN_SERVERS
}

/// Whether somebody may ask there, besides administrators: another API server.
pub fn may_ask_unfiltered(user: &User) -> bool {
    relay::may(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_client::user::NODES;

    #[test]
    fn a_node_delivers_its_own_spans() {
        assert_eq!(node_of("/coracle/v1/spans/n1"), Some("n1"));
        for path in ["/coracle/v1/spans", "/coracle/v1/spans/", "/coracle/v1/spans/n1/x", "/coracle/v1/trace"]
        {
            assert_eq!(node_of(path), None, "{path}");
        }
        let node = User::new("system:node:n1", [NODES.to_owned()]);
        assert!(may_deliver(&node, "n1") && !may_deliver(&node, "n2"));
        assert!(!may_deliver(&User::new("system:node:n1", []), "n1"));
        assert!(is_between_servers("/coracle/v1/spans") && !is_between_servers("/coracle/v1/spans/n1"));
        let named = User::new("system:apiserver", []);
        assert!(!may_ask_unfiltered(&node) && !may_ask_unfiltered(&named));
    }
}
