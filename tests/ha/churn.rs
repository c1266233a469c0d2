//! Real pods and Services that come and go.

use crate::load::NAMESPACE;
use coracle_tests::client::Target;
use coracle_tests::ha::failover::Failover;
use coracle_tests::pods::IMAGE;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// Pods and Services that are there at a time, besides those of the Deployment.
const KEPT: usize = 6;
pub const REPLICAS: usize = 6;
const REST: Duration = Duration::from_millis(2000);
pub const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/ha/deployments";

fn spec() -> Value {
    let command = json!(["sleep", "100000"]);
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}],
    })
}

/// A Deployment that must be complete at the end, and one that gives controllers something to do.
pub async fn deploy(targets: &Arc<Vec<Target>>) {
    create_deployment(targets, "web", REPLICAS).await;
    create_deployment(targets, "tide", 0).await;
}

async fn create_deployment(targets: &Arc<Vec<Target>>, name: &str, replicas: usize) {
    let labels = json!({"app": name});
    let body = json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec()}},
    });
    let made =
        Failover::new(targets.clone(), 0).write("POST", DEPLOYMENT, JSON, body.to_string().into()).await;
    assert!(made.as_ref().is_ok_and(|answer| answer.status == StatusCode::CREATED), "{made:?}");
}

/// How many pods of the Deployment are ready, of how many.
pub async fn ready(targets: &Arc<Vec<Target>>) -> (u64, usize) {
    let answer = Failover::new(targets.clone(), 0).read(&format!("{DEPLOYMENT}/web")).await;
    let body: Value =
        answer.ok().and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or_default();
    (body["status"]["readyReplicas"].as_u64().unwrap_or(0), REPLICAS)
}

/// Uids of the pods of the Deployment that must be complete, and how often their containers were started again.
///
/// # Panics
/// When they cannot be listed, or are not all there.
pub async fn lives(targets: &Arc<Vec<Target>>) -> BTreeMap<String, u64> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dweb");
    let answer = Failover::new(targets.clone(), 0).read(&path).await.expect("the pods can be listed");
    let list: Value = serde_json::from_slice(&answer.body).expect("a list");
    let pods = list["items"].as_array().expect("a list of pods").iter();
    assert_eq!(pods.len(), REPLICAS, "pods of the Deployment: {list}");
    let life = |pod: &Value| {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        (uid, pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0))
    };
    pods.map(life).collect()
}

/// Creates and deletes until it is told to stop. What becomes of a request does not matter: observers see it.
pub async fn run(targets: Arc<Vec<Target>>, stop: &AtomicBool) {
    let mut client = Failover::new(targets, 1);
    let base = format!("/api/v1/namespaces/{NAMESPACE}");
    for number in 0usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let pod = json!({"metadata": {"name": format!("p{number}")}, "spec": spec()});
        let service = json!({"metadata": {"name": format!("s{number}")}, "spec": {"ports": [{"port": 80}]}});
        for (kind, body) in [("pods", pod), ("services", service)] {
            let _ = client.write("POST", &format!("{base}/{kind}"), JSON, body.to_string().into()).await;
        }
        if let Some(old) = number.checked_sub(KEPT) {
            for path in [format!("{base}/pods/p{old}"), format!("{base}/services/s{old}")] {
                let _ = client.write("DELETE", &path, JSON, "".into()).await;
            }
        }
        let replicas = json!({"spec": {"replicas": number % 4}}).to_string();
        let _ = client.write("PATCH", &format!("{DEPLOYMENT}/tide"), MERGE, replicas.into()).await;
        tokio::time::sleep(REST).await;
    }
}
