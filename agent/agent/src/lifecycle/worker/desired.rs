//! The pod as its source wants it.

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// The newest Pod object, and whether its source still has it.
#[derive(Clone, Debug)]
pub enum Desired {
    /// The API server or a manifest has it.
    Present(Arc<Pod>),
    /// Deleted by its source, or found on the node without a source: only cleaned up.
    Gone(Arc<Pod>),
}

impl Desired {
    /// The newest object.
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            Desired::Present(pod) | Desired::Gone(pod) => pod,
        }
    }

    /// Whether the source has deleted the pod.
    pub fn is_gone(&self) -> bool {
        matches!(self, Desired::Gone(_))
    }

    /// Whether the pod is to be terminated.
    pub fn is_deleting(&self) -> bool {
        self.is_gone() || self.pod().metadata.deletion_timestamp.is_some()
    }

    /// The object changed.
    pub fn update(&mut self, new: Arc<Pod>) {
        match self {
            Desired::Present(pod) | Desired::Gone(pod) => *pod = new,
        }
    }

    /// The source has deleted the pod; `last` is its last object, where that is known.
    pub fn remove(&mut self, last: Option<Arc<Pod>>) {
        *self = Desired::Gone(last.unwrap_or_else(|| self.pod().clone()));
    }
}
