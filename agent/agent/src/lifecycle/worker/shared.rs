//! What the workers of all pods share.

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use crate::events::Kind;
use crate::lifecycle::execute::Executor;
use crate::lifecycle::table::PodTable;
use crate::pod::spec;
use crate::probe::schedule::Probes;
use crate::status::report::Reporter;
use crate::trace::NodeTrace;
use coracle_cli::supervise::{Panicked, Subject, Supervisor};

/// Task name in metrics and health pages.
pub(super) const TASK: &str = "pod worker";

/// Parts of the node that every pod worker uses.
pub struct WorkerParts {
    /// Every pod of the node.
    pub pods: PodTable,
    /// What jobs work with.
    pub executor: Arc<Executor>,
    /// Reports pod statuses to the API server.
    pub reporter: Reporter,
    /// Probes.
    pub probes: Probes,
    /// Records what is done for pods.
    pub trace: NodeTrace,
    /// Records panics of workers.
    pub supervisor: Supervisor,
    /// The runtime's name, the scheme of container ids.
    pub runtime_name: String,
}

/// The pod as the subject of a quarantine.
pub(super) fn subject(pod: &Pod) -> Subject {
    Subject::new("pods", spec::namespace(pod), spec::name(pod))
}

impl WorkerParts {
    /// Runs a future and catches panics; a panic is also recorded as an event.
    pub(super) fn catch_panic<T>(
        &self,
        pod: &Pod,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Panicked>> {
        self.supervisor.isolate(TASK, move || subject(pod), work).map(move |outcome| {
            outcome.inspect_err(|panicked| {
                let text = format!("the agent panicked and tries again later or after a change: {panicked}");
                self.executor.events.pod(pod, Kind::Warning, "ReconcilePanicked", text);
            })
        })
    }
}
