//! Events of sandboxes and containers, for subscribers.

use std::sync::Arc;

use coracle_proto::cri::{self, ContainerEventType};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use super::objects::{Container, Objects, Sandbox};
use super::stamp::now;
use super::status::sandbox_status_of;

/// Capacity of the event channel. A subscriber that falls behind by more misses the oldest events.
const CAPACITY: usize = 4096;

/// Sends events. Clones have the same subscribers.
#[derive(Clone)]
pub(crate) struct Events {
    objects: Arc<Objects>,
    /// The channel allocates its whole capacity.
    sender: broadcast::Sender<Arc<cri::ContainerEventResponse>>,
}

impl Events {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        Self { objects, sender: broadcast::Sender::new(CAPACITY) }
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> BoxStream<'static, cri::ContainerEventResponse> {
        // A lagging subscriber continues with the next event: it has to read the state anyway.
        BroadcastStream::new(self.sender.subscribe())
            .filter_map(async |event| event.ok().map(Arc::unwrap_or_clone))
            .boxed()
    }

    /// Sends an event about a sandbox.
    pub(crate) fn emit_sandbox(&self, sandbox: &Sandbox, kind: ContainerEventType) {
        self.emit(&sandbox.id, sandbox, kind);
    }

    /// Sends an event about a container.
    pub(crate) fn emit_container(&self, container: &Container, kind: ContainerEventType) {
        if let Ok(sandbox) = self.objects.sandbox(&container.sandbox) {
            self.emit(&container.id, &sandbox, kind);
        }
    }

    fn emit(&self, id: &str, sandbox: &Sandbox, kind: ContainerEventType) {
        if self.sender.receiver_count() == 0 {
            return;
        }
        let status = sandbox_status_of(&self.objects, sandbox, false);
        let _ = self.sender.send(Arc::new(cri::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now(),
            pod_sandbox_status: status.status,
            containers_statuses: status.containers_statuses,
        }));
    }
}
