#![allow(clippy::unwrap_used)]
//! Evictions by taints of devices, on a cluster.

use crate::test_cluster::Cluster;
use coracle_informer::informer::Name;
use serde_json::{Value, json};

const CLAIMS: &str = "resource.k8s.io/resourceclaims";
const SLICES: &str = "resource.k8s.io/resourceslices";

fn named(name: &str) -> Name {
    Name::new("default", name)
}

/// A pod on a node whose claim has a device, with tolerations.
async fn user(cluster: &Cluster, name: &str, device: &str, tolerations: Value) {
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "one", "exactly": {"deviceClassName": "gpu.example"}}]}}});
    cluster.create("resource.k8s.io", "resourceclaims", "default", claim).await;
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "node1",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}});
    let uid = cluster.create("", "pods", "default", pod).await.meta.uid.clone();
    let kind = cluster.client.kind("resource.k8s.io", "resourceclaims");
    let allocated = |value: &mut Value| {
        let result = json!({"request": "one", "driver": "gpu.example", "pool": "node1", "device": device,
            "tolerations": tolerations});
        let consumer = json!({"resource": "pods", "name": name, "uid": uid});
        value["status"] =
            json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]});
    };
    cluster.client.modify(&kind, "default", name, "status", allocated).await.unwrap();
}

fn slice(taints: Value) -> Value {
    json!({"metadata": {"name": "node1-gpu"}, "spec": {"driver": "gpu.example", "nodeName": "node1",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "taints": taints}, {"name": "gpu-1"}]}})
}

fn events(cluster: &Cluster, pod: &str) -> Vec<String> {
    let own = cluster.list("events", "default").into_iter();
    let own =
        own.filter(|e| e["involvedObject"]["name"] == pod && e["reason"] == "DeviceTaintManagerEviction");
    own.filter_map(|e| e["message"].as_str().map(str::to_owned)).collect()
}

fn is_leaving(cluster: &Cluster, pod: &str) -> bool {
    let pod = cluster.get("pods", &named(pod));
    pod.is_null() || pod["metadata"]["deletionTimestamp"].is_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_leave_devices_with_a_taint_that_their_claims_do_not_tolerate() {
    let cluster = Cluster::without_nodes().await;
    cluster.node("node1", json!({})).await;
    cluster.create("resource.k8s.io", "resourceslices", "", slice(json!([]))).await;
    let forever = json!([{"key": "broken", "operator": "Exists"}]);
    let soon = json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": 3600}]);
    user(&cluster, "intolerant", "gpu-0", json!([])).await;
    user(&cluster, "tolerant", "gpu-0", forever).await;
    user(&cluster, "patient", "gpu-0", soon).await;
    user(&cluster, "beside", "gpu-1", json!([])).await;
    let taint = json!([{"key": "broken", "effect": "NoExecute"}]);
    let change = json!({"spec": {"devices": slice(taint)["spec"]["devices"]}});
    cluster.patch(SLICES, &Name::new("", "node1-gpu"), change).await;
    let added = cluster.get(SLICES, &Name::new("", "node1-gpu"));
    assert!(added["spec"]["devices"][0]["taints"][0]["timeAdded"].is_string(), "{added}");
    cluster.until("one pod leaves", |c| is_leaving(c, "intolerant")).await;
    cluster.until("an event", |c| events(c, "intolerant") == ["Marking for deletion"]).await;
    let pod = cluster.get("pods", &named("intolerant"));
    if !pod.is_null() {
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
        assert_eq!(target["reason"], "DeletionByDeviceTaintManager");
    }
    for stays in ["tolerant", "patient", "beside"] {
        assert!(!is_leaving(&cluster, stays), "{stays}");
    }
    assert!(cluster.get(CLAIMS, &named("patient"))["status"]["allocation"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taint_that_goes_away_in_time_evicts_nobody() {
    let cluster = Cluster::without_nodes().await;
    cluster.node("node1", json!({})).await;
    let with = |taints: Value| json!({"spec": {"devices": slice(taints)["spec"]["devices"]}});
    let name = Name::new("", "node1-gpu");
    cluster.create("resource.k8s.io", "resourceslices", "", slice(json!([]))).await;
    let soon = json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": 3600}]);
    user(&cluster, "patient", "gpu-0", soon).await;
    // Nothing shows that an eviction waits, and one that does not wait yet is not cancelled.
    for _ in 0..100 {
        cluster.patch(SLICES, &name, with(json!([{"key": "broken", "effect": "NoExecute"}]))).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        cluster.patch(SLICES, &name, with(json!([]))).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        if !events(&cluster, "patient").is_empty() {
            break;
        }
    }
    assert_eq!(events(&cluster, "patient")[..1], ["Cancelling deletion"]);
    assert!(!is_leaving(&cluster, "patient"));
}
