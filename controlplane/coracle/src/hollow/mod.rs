//! `coracle hollow`: simulated agents without containers, thousands in one process. They register nodes, renew their Leases and
//! report every pod as running, for load tests on one machine.

// Requests over a few connections.
mod client;
// What nodes and pods look like: pure.
mod objects;
// Pods that come and go.
mod pods;

use client::{Client, ClientError};
use objects::Shape;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many requests are under way at a time.
const IN_FLIGHT: usize = 64;
/// How long a try waits for the next one.
const PAUSE: Duration = Duration::from_millis(300);

/// Options of `coracle hollow`.
#[derive(Debug, Clone, clap::Args)]
pub struct HollowArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// Kubeconfig used to connect to the API server.
    #[arg(long, env = "KUBECONFIG", default_value = "/var/lib/coracle/admin.kubeconfig")]
    kubeconfig: PathBuf,
    /// Prefix of the node names.
    #[arg(long, default_value = "hollow-")]
    prefix: String,
    /// CPUs of a node.
    #[arg(long, default_value = "32")]
    cpu: String,
    /// Memory of a node.
    #[arg(long, default_value = "256Gi")]
    memory: String,
    /// Pod capacity of a node.
    #[arg(long, default_value_t = 110)]
    pods: u32,
    /// Number of zones.
    #[arg(long, default_value_t = 3)]
    zones: usize,
    /// Interval of Lease renewals, in seconds.
    #[arg(long, default_value_t = 10)]
    heartbeat: u64,
    /// Start time of a pod, in milliseconds.
    #[arg(long, default_value_t = 0)]
    start_delay: u64,
    /// Milliseconds after which pods succeed unless their restartPolicy is Always; never by default.
    #[arg(long)]
    complete_after: Option<u64>,
}

/// What all parts know.
pub(crate) struct Hollow {
    client: Client,
    shape: Shape,
    args: HollowArgs,
}

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
    let mut tasks = JoinSet::new();
    tasks.spawn(hollow.clone().beat(names));
    tasks.spawn(pods::follow(hollow));
    while tasks.join_next().await.is_some() {}
    Ok(())
}

impl Hollow {
    /// Makes every node and says that it is ready; tries until the server has it.
    async fn register(self: &Arc<Self>, names: &[String]) {
        let mut under_way = JoinSet::new();
        for index in 0..names.len() {
            if under_way.len() >= IN_FLIGHT {
                under_way.join_next().await;
            }
            let hollow = self.clone();
            under_way.spawn(async move {
                while let Err(error) = hollow.register_one(index).await {
                    tracing::warn!(node = hollow.shape.name(index), %error, "cannot register node, will retry");
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        while under_way.join_next().await.is_some() {}
    }

    async fn register_one(&self, index: usize) -> Result<(), ClientError> {
        let name = self.shape.name(index);
        match self.client.send("POST", "/api/v1/nodes", Some(&self.shape.node(index))).await {
            Err(error) if !error.is(409) => return Err(error),
            _ => {}
        }
        let status = self.shape.node_status(index);
        self.client.patch(&format!("/api/v1/nodes/{name}/status"), &status).await?;
        let lease = objects::lease(&name, self.args.heartbeat);
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        match self.client.send("POST", leases, Some(&lease)).await {
            Err(error) if !error.is(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Renews all leases, evenly over the time of a heartbeat.
    async fn beat(self: Arc<Self>, names: Vec<String>) {
        let pause = Duration::from_secs(self.args.heartbeat.max(1)) / (names.len().max(1) as u32);
        let mut tick = tokio::time::interval(pause.max(Duration::from_micros(500)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let mut under_way = JoinSet::new();
        for name in names.iter().cycle() {
            tick.tick().await;
            while under_way.try_join_next().is_some() {}
            if under_way.len() >= IN_FLIGHT {
                under_way.join_next().await;
            }
            let (hollow, name) = (self.clone(), name.clone());
            under_way.spawn(async move {
                let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
                let body = json!({"spec": {"renewTime": objects::micros()}});
                if let Err(error) = hollow.client.merge(&path, &body).await {
                    tracing::debug!(node = name, %error, "cannot renew lease");
                }
            });
        }
    }
}
