//! Attachments, on the real pipeline.

#![allow(clippy::unwrap_used)]
use crate::test_cluster::Cluster;
use coracle_client::options::DeleteOptions;
use coracle_informer::informer::Name;
use serde_json::{Value, json};

const DRIVER: &str = "disk.example";

async fn cluster_with_volume() -> Cluster {
    let cluster = Cluster::without_nodes().await;
    for node in ["node-1", "node-2"] {
        cluster.node(node, json!({})).await;
    }
    let volume = json!({"metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "csi": {"driver": DRIVER, "volumeHandle": "vol-1"}}});
    cluster.create("", "persistentvolumes", "", volume).await;
    let claim = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create("", "persistentvolumeclaims", "default", claim).await;
    let name = Name::new("default", "data");
    let claim = |c: &Cluster| c.get("persistentvolumeclaims", &name);
    cluster.until("bound", |c| claim(c)["status"]["phase"] == "Bound").await;
    assert_eq!(claim(&cluster)["status"]["capacity"]["storage"], "1Gi");
    cluster
}

async fn pod(cluster: &Cluster, name: &str, node: &str) {
    let body = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "v1"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.create("", "pods", "default", body).await;
}

async fn pod_is_gone(cluster: &Cluster, name: &str) {
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    cluster.client.delete(&cluster.client.kind("", "pods"), "default", name, options).await.unwrap();
}

fn attachments(cluster: &Cluster) -> Vec<Value> {
    cluster.list("storage.k8s.io/volumeattachments", "")
}

async fn driver_attaches(cluster: &Cluster) {
    cluster.until("an attachment", |c| attachments(c).len() == 1).await;
    let kind = cluster.client.kind("storage.k8s.io", "volumeattachments");
    let name = attachments(cluster)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let attached = |object: &mut Value| object["status"] = json!({"attached": true});
    cluster.client.modify(&kind, "", &name, "status", attached).await.unwrap();
}

async fn node_says(cluster: &Cluster, node: &str, in_use: Value) {
    let kind = cluster.client.kind("", "nodes");
    let say = move |object: &mut Value| object["status"]["volumesInUse"] = in_use.clone();
    cluster.client.modify(&kind, "", node, "status", say).await.unwrap();
}

fn attached_to(cluster: &Cluster, node: &str) -> Value {
    cluster.get("nodes", &Name::new("", node))["status"]["volumesAttached"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_attached_for_its_pod_and_moves_to_the_next_node_when_it_is_not_in_use() {
    let cluster = cluster_with_volume().await;
    pod(&cluster, "one", "node-1").await;
    driver_attaches(&cluster).await;
    let spec = attachments(&cluster)[0]["spec"].clone();
    assert_eq!((&spec["attacher"], &spec["nodeName"]), (&json!(DRIVER), &json!("node-1")));
    assert_eq!(spec["source"]["persistentVolumeName"], "pv");
    let unique = format!("kubernetes.io/csi/{DRIVER}^vol-1");
    cluster.until("told", |c| attached_to(c, "node-1")[0]["name"] == unique.as_str()).await;
    node_says(&cluster, "node-1", json!([unique])).await;

    // Another node has to wait, and its pod says why.
    pod(&cluster, "two", "node-2").await;
    let told = |c: &Cluster| {
        c.list("events", "default").iter().any(|e| {
            e["reason"] == "FailedAttachVolume"
                && e["involvedObject"]["name"] == "two"
                && e["message"].as_str().unwrap().starts_with("Multi-Attach error for volume \"pv\"")
        })
    };
    cluster.until("the reason", told).await;
    pod_is_gone(&cluster, "one").await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(attachments(&cluster)[0]["spec"]["nodeName"], "node-1", "the node still uses it");
    node_says(&cluster, "node-1", json!([])).await;
    let moved = |c: &Cluster| {
        let all = attachments(c);
        all.len() == 1 && all[0]["spec"]["nodeName"] == "node-2"
    };
    cluster.until("attached to the other node", moved).await;
    assert_eq!(attached_to(&cluster, "node-1").as_array().map_or(0, Vec::len), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_grows_does_not_change_its_claim_before_the_node_says_so() {
    let cluster = cluster_with_volume().await;
    let larger = json!({"spec": {"capacity": {"storage": "2Gi"}}});
    cluster.patch("persistentvolumes", &Name::new("", "pv"), larger).await;
    let touched = json!({"metadata": {"labels": {"a": "b"}}});
    let name = Name::new("default", "data");
    cluster.patch("persistentvolumeclaims", &name, touched).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(cluster.get("persistentvolumeclaims", &name)["status"]["capacity"]["storage"], "1Gi");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_that_do_not_attach_have_no_attachments_and_a_node_out_of_service_keeps_none() {
    let cluster = cluster_with_volume().await;
    pod(&cluster, "one", "node-1").await;
    driver_attaches(&cluster).await;
    let unique = format!("kubernetes.io/csi/{DRIVER}^vol-1");
    node_says(&cluster, "node-1", json!([unique])).await;
    pod_is_gone(&cluster, "one").await;
    let taint = json!({"spec": {"taints": [
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    cluster.patch("nodes", &Name::new("", "node-1"), taint).await;
    cluster.until("detached by force", |c| attachments(c).is_empty()).await;

    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.create("storage.k8s.io", "csidrivers", "", driver).await;
    pod(&cluster, "two", "node-2").await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(attachments(&cluster).is_empty());
}
