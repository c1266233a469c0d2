//! `coracle hollow`: simulated agents without containers, thousands in one process. They register nodes, renew their Leases and
//! report every pod as running, for load tests on one machine.

// What was asked for.
mod options;
// Requests over a few connections.
mod client;
// What nodes and pods look like: pure.
mod objects;
// Nodes that register and renew their Leases.
mod nodes;
// Pods that come and go.
mod pods;

pub use options::HollowArgs;

use client::Client;
use nodes::Hollow;
use objects::Shape;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Runs until it is ended.
pub async fn run(args: HollowArgs) -> anyhow::Result<()> {
    let client = Client::from_kubeconfig(&args.kubeconfig)?;
    let shape = Shape {
        prefix: args.prefix.clone(),
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        pods: args.pods,
        zones: args.zones.max(1),
    };
    let hollow = Arc::new(Hollow { client, shape, args });
    let names: Vec<String> = (0..hollow.args.nodes).map(|i| hollow.shape.name(i)).collect();
    hollow.register(&names).await;
    tracing::info!(nodes = names.len(), "hollow nodes are ready");
    let text = || format!("{} hollow nodes are ready\n", names.len());
    hollow.args.output.print(&serde_json::json!({"nodes": names}), text)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(hollow.clone().beat(names));
    tasks.spawn(pods::follow(hollow));
    while tasks.join_next().await.is_some() {}
    Ok(())
}
