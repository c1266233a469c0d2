//! What evictions by resource pressure and by storage limits share.

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use crate::config::NodeConfig;
use crate::events::Recorder;
use crate::image::gc::ages::ImageAges;
use crate::lifecycle::table::{Message, PodTable};
use crate::pod::spec;
use coracle_engine::runtime::Runtime;

/// Seconds that pods have to end when there is no time.
pub(super) const IMMEDIATE: i64 = 1;

/// What evictions measure and act on.
pub struct EvictionParts {
    /// Settings: thresholds and directories.
    pub config: Arc<NodeConfig>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The pods.
    pub pods: PodTable,
    /// When images came to the node: new ones are not removed.
    pub ages: ImageAges,
    /// Events.
    pub events: Recorder,
}

impl EvictionParts {
    /// Evicts a pod because the node is short of something: a disruption. It has so many seconds to end.
    pub(super) fn evict_under_pressure(&self, pod: &Pod, message: String, grace: i64) {
        self.evict(pod, message.clone(), Some(message), grace);
    }

    /// Evicts a pod that exceeds a limit of its own.
    pub(super) fn evict_over_limit(&self, pod: &Pod, message: String) {
        self.evict(pod, message, None, IMMEDIATE);
    }

    fn evict(&self, pod: &Pod, message: String, disruption: Option<String>, grace: i64) {
        let reason = "Evicted".to_owned();
        self.pods.send(spec::uid(pod), Message::Evict { reason, message, disruption, grace });
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
