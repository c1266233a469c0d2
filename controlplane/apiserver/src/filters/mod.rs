//! Filters between authentication and authorization: CORS, impersonation, flow control and audit.

// CORS.
pub mod cors;
// Impersonation.
pub mod impersonate;
// API priority and fairness.
pub mod flow_control;
// Audit logging.
pub mod audit;

use std::sync::Arc;
use std::time::Duration;

/// The filters of a server.
pub struct Filters {
    /// Allowed CORS origins.
    pub cors: cors::Cors,
    /// API priority and fairness.
    pub flow: flow_control::FlowControl,
    /// Audit logging, also of calls in this process.
    pub audit: Arc<audit::Audit>,
    /// Timeout of requests that are not long-running.
    pub timeout: Duration,
}
