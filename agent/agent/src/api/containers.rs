//! The pods and containers that requests are about.

use std::sync::Arc;

use crate::lifecycle::table::PodTable;
use crate::status::report::Reporter;
use coracle_engine::runtime::Runtime;

/// Pods of the node, their statuses, and the runtime that has their containers.
pub struct Containers {
    /// The pods.
    pub pods: PodTable,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Statuses of pods.
    pub reporter: Reporter,
}
