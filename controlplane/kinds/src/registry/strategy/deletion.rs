//! How objects end: the grace of Pods, the content of Namespaces.

use coracle_fields::Schema;
use coracle_fields::core::v1::{Namespace, Pod};
use serde_json::Value;

/// A Pod ends within the time the client or its spec gives it; one that no node runs, or that has ended, goes at once.
pub fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let pod = Pod::of(pod);
    let ended = matches!(pod.status().phase().text(), "Failed" | "Succeeded");
    if ended || pod.spec().node_name().text().is_empty() {
        return 0;
    }
    match asked.or_else(|| pod.spec().termination_grace_period_seconds().int()) {
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
        None => 30,
    }
}

/// A Namespace that is being deleted says so.
pub fn begin_namespace(namespace: &mut Value) {
    Namespace::edit(namespace).status().phase().set("Terminating");
}

/// A Namespace is removed when it has no finalizers in its spec.
pub fn namespace_removable(namespace: &Value) -> bool {
    Namespace::of(namespace).spec().finalizers().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_pod_on_a_node_gets_time() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 7}, "status": {"phase": phase}});
        assert_eq!(pod_grace(&pod("n", "Running"), None), 7);
        assert_eq!(pod_grace(&pod("n", "Running"), Some(3)), 3);
        assert_eq!(pod_grace(&pod("n", "Running"), Some(0)), 0);
        assert_eq!(pod_grace(&pod("", "Pending"), Some(30)), 0);
        assert_eq!(pod_grace(&pod("n", "Succeeded"), None), 0);
    }
}
