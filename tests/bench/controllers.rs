//! The control loops: from a Deployment to bound pods, and up and down again, on hollow nodes.

use crate::hollow;
use crate::report::Report;
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const REPLICAS: usize = 1000;
const NODES: usize = 1000;
const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Everything.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    let server = Server::with(&hollow::RANGE);
    let target = Target::new(server.data_dir(), &server.url())?;
    let mut connection = target.connect().await?;
    let begun = Instant::now();
    let agents = hollow::nodes(&server, &mut connection, NODES).await?;
    report.add(&format!("{NODES} nodes registered and ready"), begun.elapsed().as_secs_f64(), "s");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": "100m"}}}]}}}});
    let begun = Instant::now();
    connection.call("POST", PATH, deployment.to_string().into()).await?;
    hollow::all_bound(&mut connection, REPLICAS).await?;
    report.add(&format!("Deployment of {REPLICAS}: create to all bound"), begun.elapsed().as_secs_f64(), "s");
    loop {
        let seen: Value =
            serde_json::from_slice(&connection.call("GET", &format!("{PATH}/web"), Bytes::new()).await?)?;
        if seen["status"]["availableReplicas"].as_u64() == Some(REPLICAS as u64) {
            break;
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(600), "the deployment is not available");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    report.add(
        &format!("Deployment of {REPLICAS}: create to all available"),
        begun.elapsed().as_secs_f64(),
        "s",
    );
    let begun = Instant::now();
    connection.call("DELETE", &format!("{PATH}/web"), Bytes::new()).await?;
    loop {
        let left: Value =
            serde_json::from_slice(&connection.call("GET", "/api/v1/pods?limit=1", Bytes::new()).await?)?;
        if left["items"].as_array().is_none_or(Vec::is_empty) {
            break;
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(600), "pods are left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    report.add(
        &format!("Deployment of {REPLICAS}: delete to no pod left"),
        begun.elapsed().as_secs_f64(),
        "s",
    );
    drop(agents);
    Ok(report)
}
