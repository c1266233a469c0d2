//! Claims of StatefulSets, on the real pipeline.

#![allow(clippy::unwrap_used)]
use crate::test_cluster::Cluster;
use coracle_informer::informer::Name;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_when_scaled_delete_a_pod_waits_until_the_claim_of_the_earlier_pod_is_gone() {
    let cluster = Cluster::start().await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    // As a smaller set leaves it: its pod is gone, and the garbage collector has not come yet.
    let stale = json!({"metadata": {"name": "data-db-0", "namespace": "default", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "0f5c52f9-0000-4000-8000-000000000000"}]}, "spec": claim});
    let stale = cluster.create("", "persistentvolumeclaims", "default", stale).await;
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 1, "serviceName": "db", "template": template,
        "selector": {"matchLabels": {"app": "db"}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}});
    cluster.create("apps", "statefulsets", "default", set).await;
    let (pod, name) = (Name::new("default", "db-0"), Name::new("default", "data-db-0"));
    cluster.until("a pod", |c| !c.get("pods", &pod).is_null()).await;
    let claim = cluster.get("persistentvolumeclaims", &name);
    assert!(
        claim["metadata"]["uid"].is_string() && claim["metadata"]["uid"] != stale.meta.uid.as_str(),
        "{claim}"
    );
    assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
}
