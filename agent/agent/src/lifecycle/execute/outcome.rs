//! The result of a job.

use std::sync::Arc;
use std::time::Duration;

use crate::pod::admit::Rejection;
use crate::pod::plan::Start;
use crate::volume::prepare::Prepared;

/// Delay before a job that panicked is retried.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// An error of one step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The container it is about; `None` for the pod as a whole.
    pub container: Option<String>,
    /// Reason for the container's waiting state.
    pub reason: String,
    /// Message for the container's waiting state.
    pub message: String,
    /// When to try again.
    pub retry: Duration,
}

/// Result of a job.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The volumes, once they are ready.
    pub prepared: Option<Arc<Prepared>>,
    /// Containers that were started.
    pub started: Vec<Start>,
    /// Errors.
    pub failures: Vec<Failure>,
    /// Whether the volumes failed.
    pub volumes_failed: bool,
    /// Why the pod cannot run on this node.
    pub rejection: Option<Rejection>,
}

impl Outcome {
    /// Outcome of a job that panicked: these containers and the sandbox are retried after a delay.
    pub fn panicked(containers: &[String], message: &str) -> Self {
        let failure = |container: Option<String>| Failure {
            container,
            reason: "ReconcilePanicked".into(),
            message: message.to_owned(),
            retry: AFTER_PANIC,
        };
        let failures = containers.iter().cloned().map(Some).chain([None]).map(failure).collect();
        Outcome { failures, ..Outcome::default() }
    }
}
