//! What control loops show on the server's pages.

use coracle_proto::exposition::Page;
use std::collections::BTreeMap;

/// Somebody who counts.
pub trait Counters: Send + Sync {
    /// Writes everything that is counted, as upstream names it.
    fn render(&self, page: &mut Page);
}

/// Pods that wait for a node.
pub trait Waiting: Send + Sync {
    /// Every waiting pod, as `namespace/name`, and why it waits.
    fn sentences(&self) -> BTreeMap<String, String>;

    /// Why a pod waits, node by node; `None` when it does not.
    fn explain(&self, namespace: &str, name: &str) -> Option<String>;
}
