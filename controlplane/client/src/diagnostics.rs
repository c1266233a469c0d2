//! What control loops report on the server's metrics and debug pages.

use coracle_proto::exposition::Page;
use std::collections::BTreeMap;

/// Metrics of a control loop.
pub trait MetricsSource: Send + Sync {
    /// Writes the metrics in the Prometheus text format, with the names of Kubernetes.
    fn render(&self, page: &mut Page);
}

/// Pods that are not scheduled yet.
pub trait PendingPods: Send + Sync {
    /// Every pending pod, as `namespace/name`, with the message of its `PodScheduled` condition.
    fn reasons(&self) -> BTreeMap<String, String>;

    /// Why a pod is pending, node by node; `None` when it is not pending.
    fn explain(&self, namespace: &str, name: &str) -> Option<String>;
}
