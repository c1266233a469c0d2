//! Labels of the node, for a pod that asks for others than are known here.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use std::time::Duration;

use crate::pod::admit;
use crate::pod::node_facts::SharedFacts;

/// How long a pod waits for the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the Node if its labels, as they are known here, keep the pod away: they may have changed a moment ago, and the scheduler may
/// have seen it first. What is read replaces what is known.
pub async fn refresh(pod: &Pod, node: &str, client: &kube::Client, facts: &SharedFacts) {
    if admit::selects(pod, &facts.read().labels, node) {
        return;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    match tokio::time::timeout(PATIENCE, nodes.get(node)).await {
        Ok(Ok(read)) => facts.write().labels = read.metadata.labels.unwrap_or_default(),
        Ok(Err(error)) => {
            tracing::warn!(node, error = %causes::chain(&error), "cannot read the node's labels");
        }
        Err(_) => tracing::warn!(node, "the node's labels cannot be read in time"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::node_facts::NodeFacts;
    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::RwLock;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pod(disk: &str) -> Pod {
        let object =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeSelector": {"disk": disk}}});
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn labels_are_read_again_only_for_pods_that_ask_for_others() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let client = kube::Client::new(
            tower::service_fn(move |request: Request<Body>| {
                assert_eq!(request.uri().path(), "/api/v1/nodes/n");
                count.fetch_add(1, Ordering::SeqCst);
                let node = json!({"metadata": {"name": "n", "labels": {"disk": "ssd"}}}).to_string();
                async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(node.into_bytes()))) }
            }),
            "default",
        );
        let known = [("disk".to_owned(), "hdd".to_owned())].into();
        let facts: SharedFacts = Arc::new(RwLock::new(NodeFacts { labels: known, ..NodeFacts::default() }));
        for (disk, requests) in [("hdd", 0), ("ssd", 1), ("ssd", 1), ("tape", 2)] {
            refresh(&pod(disk), "n", &client, &facts).await;
            assert_eq!(asked.load(Ordering::SeqCst), requests, "{disk}");
        }
        assert_eq!(facts.read().labels["disk"], "ssd");
    }

    #[tokio::test]
    async fn labels_stay_when_the_node_cannot_be_read() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let gone = Response::builder().status(404).body(Body::from(b"{}".to_vec())).unwrap();
            Ok::<_, std::convert::Infallible>(gone)
        });
        let facts = SharedFacts::default();
        facts.write().labels.insert("disk".into(), "hdd".into());
        refresh(&pod("ssd"), "n", &kube::Client::new(service, "default"), &facts).await;
        assert_eq!(facts.read().labels["disk"], "hdd");
    }
}
