//! How objects end: the grace of Pods, the content of Namespaces.

use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// A Pod ends within the time the client or its spec gives it; one that no node runs, or that has ended, goes at once.
pub fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(pod.at("status.phase").as_str(), Some("Failed" | "Succeeded"));
    let placed = pod.at("spec.nodeName").as_str().is_some_and(|node| !node.is_empty());
    if ended || !placed {
        return 0;
    }
    match asked.or_else(|| pod.at("spec.terminationGracePeriodSeconds").as_i64()) {
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
        None => 30,
    }
}

/// A Namespace that is being deleted says so.
pub fn begin_namespace(namespace: &mut Value) {
    namespace["status"]["phase"] = json!("Terminating");
}

/// A Namespace is removed when it has no finalizers in its spec.
pub fn namespace_removable(namespace: &Value) -> bool {
    namespace.at("spec.finalizers").as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

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
