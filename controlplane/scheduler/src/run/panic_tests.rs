//! The scheduler with objects that make it panic.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::tests::{NO_TIMERS, cluster};
use coracle_client::patch::Patch;
use coracle_kinds::object::Name;
use coracle_kinds::watch::event::Event;
use coracle_testing::Cluster;
use serde_json::{Value, json};

/// Names the pods that a filter of this test cannot handle.
const TRAP: &str = "test/panics";

/// Stands for a filter with a bug.
pub(super) fn trap(pod: &PodInfo) {
    assert!(!pod.labels.contains_key(TRAP), "a filter cannot handle the pod");
}

async fn node(cluster: &Cluster) {
    let kind = cluster.client.kind("", "nodes");
    cluster.create("", "nodes", "", json!({"metadata": {"name": "n"}})).await;
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.client.patch(&kind, "", "n", "status", Patch::Merge(status)).await.unwrap();
}

async fn pod(cluster: &Cluster, name: &str, labels: Value) {
    let body = json!({"metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    cluster.create("", "pods", "default", body).await;
}

fn is_bound(cluster: &Cluster, name: &str) -> bool {
    cluster.get("pods", &Name::new("default", name))["spec"]["nodeName"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_make_the_scheduler_panic_hold_up_no_pod() {
    let cluster = cluster().await;
    let supervisor = Supervisor::default();
    node(&cluster).await;
    let (pending, supervised) = (PendingReasons::default(), (&supervisor, NO_TIMERS));
    let _tasks = start_with(&cluster.client, Configuration::default(), Arc::default(), &pending, supervised);
    pod(&cluster, "before", json!({})).await;
    cluster.until("bound", |c| is_bound(c, "before")).await;
    // One that cannot be decided on, and a claim whose bytes are no JSON.
    pod(&cluster, "bad", json!({TRAP: "yes"})).await;
    let claims = cluster.client.cache(&cluster.client.kind("", "persistentvolumeclaims"));
    let odd = json!({"metadata": {"name": "odd", "namespace": "default"}});
    let mut odd = Arc::into_inner(coracle_kinds::object::testing::object(odd)).unwrap();
    (odd.json, odd.revision) = (bytes::Bytes::from_static(b"{"), claims.revision() + 1);
    let event =
        Event { what: EventType::Added, object: Arc::new(odd), previous: None, line: bytes::Bytes::new() };
    claims.push("default/odd", event);
    claims.announce();
    cluster.until("both are put aside", |_| supervisor.quarantined().len() == 2).await;
    let quarantine: Vec<String> = supervisor.quarantined().iter().map(|q| q.subject.to_string()).collect();
    assert_eq!(quarantine, ["persistentvolumeclaims default/odd", "pods default/bad"]);
    for name in ["a", "b", "c"] {
        pod(&cluster, name, json!({})).await;
    }
    cluster.until("others are bound", |c| ["a", "b", "c"].iter().all(|name| is_bound(c, name))).await;
    assert!(!is_bound(&cluster, "bad"));
    let told = |c: &Cluster| {
        let events = c.list("events", "default");
        events.iter().any(|e| e["reason"] == "ReconcilePanicked" && e["involvedObject"]["name"] == "bad")
    };
    cluster.until("an event", told).await;
    assert!(supervisor.dead().is_empty(), "{:?}", supervisor.dead());
    // It is tried again when it changes.
    cluster.patch("pods", &Name::new("default", "bad"), json!({"metadata": {"labels": {TRAP: null}}})).await;
    cluster.until("the changed one is bound", |c| is_bound(c, "bad")).await;
    cluster.until("it is released", |_| supervisor.quarantined().len() == 1).await;
}
