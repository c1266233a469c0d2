//! Whom the proxy serves.

use coracle_apiserver::respond::Body;
use http::Response;
use http::header::{HeaderMap, HeaderValue};

/// Answers a request for a file of the page.
pub type Page = fn(&str, &HeaderMap) -> Option<Response<Body>>;

/// Whom the proxy serves.
pub enum Mode {
    /// The page: reads only.
    Page {
        /// The page of this program, for servers that have none.
        own: Option<Page>,
        /// Namespace of the context.
        namespace: String,
    },
    /// A command: everything, as a part of one trace.
    Command {
        /// Added to requests that have none.
        traceparent: HeaderValue,
    },
}
