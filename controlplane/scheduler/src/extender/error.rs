//! Why an extender has no answer.

use std::time::Duration;

/// Why an extender has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExtenderError {
    /// No connection, or it broke.
    #[error("extender {url}: {why}")]
    Connection {
        /// Where to.
        url: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("extender {url}: no answer within {limit:?}")]
    Timeout {
        /// Where to.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// It has another status code than 200.
    #[error("extender {url}: status code {code}")]
    Status {
        /// Where to.
        url: String,
        /// The code.
        code: u16,
    },
    /// Its answer is too large.
    #[error("extender {url}: the answer is larger than {limit} bytes")]
    TooLarge {
        /// Where to.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// Its answer is none.
    #[error("extender {url}: the answer cannot be read")]
    Malformed {
        /// Where to.
        url: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Its answer has another form.
    #[error("extender {url}: the answer has no usable {field}")]
    Form {
        /// Where to.
        url: String,
        /// The part of the answer.
        field: &'static str,
    },
    /// It says that it failed.
    #[error("extender {url}: {message}")]
    Failed {
        /// Where to.
        url: String,
        /// What it says.
        message: String,
    },
    /// It names a node that it was not asked about.
    #[error("extender {url} claims a filtered node {node:?} which is not found in the input node list")]
    UnknownNode {
        /// Where to.
        url: String,
        /// The node.
        node: String,
    },
    /// It names a pod that is not on the node.
    #[error(
        "extender {url} claims to preempt pod (UID: {uid}) on node {node}, but the pod is not found on that node"
    )]
    UnknownVictim {
        /// Where to.
        url: String,
        /// The node.
        node: String,
        /// The pod.
        uid: String,
    },
}
