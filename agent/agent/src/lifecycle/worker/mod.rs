//! One task per pod: Pending → Running → Ending, never backwards.
//!
//! The worker only decides. Slow operations (volumes, images, starts, stops) run in their own tasks and report by
//! message, so that a deletion is never delayed by a pull or a hook.

// The pod as its source wants it.
mod desired;
// Where the pod is in its life.
mod stage;
// Values that may be out of date.
mod known;
// What is remembered of containers.
mod containers;
// Times.
mod clock;
// What is recorded of the pod.
mod trace;
// Tasks that the worker has started.
mod tasks;
// What all workers share.
mod shared;
// The worker: messages and passes.
mod task;
// Reconciles a running pod with its spec.
mod sync;
// Refreshes volumes of a running pod.
mod volumes;
// In-place resize.
mod resize;
// Messages of its events.
mod resize_event;
// Termination and cleanup.
mod terminate;
// Reports status and sets probes.
mod report;
// Restarts the worker after a panic.
mod restart;

pub use self::desired::Desired;
pub use self::shared::WorkerParts;

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::unbounded_channel;

use super::table::{Message, PodTable};
use crate::pod::spec;

/// Starts workers. Clones share their pods.
#[derive(Clone)]
pub struct Workers(Arc<WorkerParts>);

impl Workers {
    /// No worker runs yet.
    pub fn new(parts: WorkerParts) -> Self {
        Workers(Arc::new(parts))
    }

    /// The pods that have workers.
    pub fn pods(&self) -> &PodTable {
        &self.0.pods
    }

    /// A pod of the API server appeared or changed: its worker is told, or started. `received` is when this node got it.
    pub fn deliver(&self, pod: Arc<Pod>, received: Instant) {
        self.0.reporter.seen(&pod);
        if !self.0.pods.send(spec::uid(&pod), Message::Pod(pod.clone(), received)) {
            self.spawn_received(Desired::Present(pod), received);
        }
    }

    /// Starts the worker of a pod; `false` if there is one already.
    pub fn spawn(&self, desired: Desired) -> bool {
        self.spawn_received(desired, Instant::now())
    }

    fn spawn_received(&self, desired: Desired, received: Instant) -> bool {
        let (mailbox, inbox) = unbounded_channel();
        let pod = desired.pod();
        if !self.0.pods.insert(pod, mailbox.clone()) {
            return false;
        }
        if !desired.is_gone() {
            tracing::info!(
                pod = spec::name(pod),
                namespace = spec::namespace(pod),
                uid = spec::uid(pod),
                "pod arrives"
            );
        }
        tokio::spawn(restart::run_worker(self.0.clone(), (desired, received), mailbox, inbox));
        true
    }
}
