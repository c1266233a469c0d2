//! Nodes without containers for measurements, and waiting for what happens to pods.

use bytes::Bytes;
use coracle_tests::client::{Connection, Target};
use coracle_tests::program;
use coracle_tests::server::Server;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;

/// Room for the pod ranges of thousands of nodes.
pub const RANGE: [&str; 2] = ["--cluster-cidr", "10.128.0.0/9"];

/// The nodes' process, gone when dropped.
pub struct Hollow(Child);

impl Drop for Hollow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Registers nodes and waits until pods may go to all of them; the agents go on until the result is dropped.
pub async fn nodes(server: &Server, connection: &mut Connection, count: usize) -> anyhow::Result<Hollow> {
    let child = Command::new(program("coracle"))
        .args(["hollow", "--nodes", &count.to_string(), "--heartbeat", "30", "--kubeconfig"])
        .arg(server.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let hollow = Hollow(child);
    let begun = Instant::now();
    loop {
        let list = connection.call("GET", "/api/v1/nodes", Bytes::new()).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let free = |node: &Value| {
            let spec = &node["spec"];
            spec["taints"].as_array().is_none_or(Vec::is_empty) && !spec["podCIDR"].is_null()
        };
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        if items.iter().filter(|node| free(node)).count() >= count {
            return Ok(hollow);
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(600), "{count} nodes are not ready");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Creates what `object` makes of each number, over a few connections.
pub async fn create(
    target: &Target,
    path: &'static str,
    numbers: std::ops::Range<usize>,
    object: impl Fn(usize) -> Value + Copy + Send + 'static,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (next, mut connection, end) = (next.clone(), target.connect().await?, numbers.end);
        clients.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return anyhow::Ok(());
                }
                connection.call("POST", path, object(number).to_string().into()).await?;
            }
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(())
}

/// Waits until at least `wanted` pods exist and no pod is without a node; how long that took.
pub async fn all_bound(connection: &mut Connection, wanted: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        let path = "/api/v1/pods?limit=1&fieldSelector=spec.nodeName%3D";
        let pending: Value = serde_json::from_slice(&connection.call("GET", path, Bytes::new()).await?)?;
        if pending["items"].as_array().is_none_or(Vec::is_empty) {
            let took = begun.elapsed();
            let all = connection.call("GET", "/api/v1/pods?limit=1", Bytes::new()).await?;
            let all: Value = serde_json::from_slice(&all)?;
            let more = all["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize;
            if all["items"].as_array().map_or(0, Vec::len) + more >= wanted {
                return Ok(took);
            }
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(900), "pods are still without a node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
