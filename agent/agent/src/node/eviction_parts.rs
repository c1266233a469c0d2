//! What evictions by resource pressure and by storage limits share.

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use crate::config::NodeConfig;
use crate::events::Recorder;
use crate::lifecycle::table::{Message, PodTable};
use crate::pod::spec;
use coracle_engine::runtime::Runtime;

/// What evictions measure and act on.
pub struct EvictionParts {
    /// Settings: thresholds and directories.
    pub config: Arc<NodeConfig>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The pods.
    pub pods: PodTable,
    /// Events.
    pub events: Recorder,
}

impl EvictionParts {
    /// Evicts a pod with a message on its status.
    pub(super) fn evict(&self, pod: &Pod, message: String) {
        self.pods.send(spec::uid(pod), Message::Evict { reason: "Evicted".into(), message, grace: 1 });
    }
}

/// Bytes in the largest binary unit that leaves no rest.
pub(super) fn binary(bytes: i64) -> String {
    let mut amount = bytes;
    for unit in ["", "Ki", "Mi", "Gi", "Ti", "Pi"] {
        if amount == 0 || amount % 1024 != 0 {
            return format!("{amount}{unit}");
        }
        amount /= 1024;
    }
    format!("{amount}Ei")
}
