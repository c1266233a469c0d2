//! What stands between authentication and authorization: browsers, impersonation, queues, and the audit log.

// Pages of other origins.
pub mod cors;
// Acting as somebody else.
pub mod impersonate;
// Queues by flow.
pub mod flow;
// What was done by whom.
pub mod audit;

use std::time::Duration;

/// The filters of a server.
pub struct Filters {
    /// Which origins browsers may come from.
    pub cors: cors::Cors,
    /// Who waits for whom.
    pub flow: flow::Flow,
    /// What is written down.
    pub audit: audit::Audit,
    /// How long a request that is not a stream may take.
    pub timeout: Duration,
}
