//! Simulated nodes: they register and renew their Leases.

use super::client::{Client, ClientError};
use super::objects::{self, Shape};
use super::options::HollowArgs;
use coracle_cli::causes;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::make;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many requests are under way at a time.
pub const IN_FLIGHT: usize = 64;
/// How long a try waits for the next one.
pub const PAUSE: Duration = Duration::from_millis(300);

/// The simulated nodes.
pub struct Hollow {
    pub client: Client,
    pub shape: Shape,
    pub args: HollowArgs,
}

impl Hollow {
    /// Makes every node and says that it is ready; tries until the server has it.
    pub async fn register(self: &Arc<Self>, names: &[String]) {
        let mut under_way = JoinSet::new();
        for index in 0..names.len() {
            if under_way.len() >= IN_FLIGHT {
                under_way.join_next().await;
            }
            let hollow = self.clone();
            under_way.spawn(async move {
                while let Err(error) = hollow.register_one(index).await {
                    tracing::warn!(node = hollow.shape.name(index), error = %causes::chain(&error), "cannot register node, will retry");
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        while under_way.join_next().await.is_some() {}
    }

    async fn register_one(&self, index: usize) -> Result<(), ClientError> {
        let name = self.shape.name(index);
        match self.client.send("POST", "/api/v1/nodes", Some(&self.shape.node(index).into_value())).await {
            Err(error) if !error.is(409) => return Err(error),
            _ => {}
        }
        let status = self.shape.node_status(index).into_value();
        self.client.patch(&format!("/api/v1/nodes/{name}/status"), &status).await?;
        let lease = objects::lease(&name, self.args.heartbeat).into_value();
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        match self.client.send("POST", leases, Some(&lease)).await {
            Err(error) if !error.is(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Renews all leases, evenly over the time of a heartbeat.
    pub async fn beat(self: Arc<Self>, names: Vec<String>) {
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
                let body = make!(part Lease { spec: { renew_time: objects::micros() } }).into_value();
                if let Err(error) = hollow.client.merge(&path, &body).await {
                    tracing::debug!(node = name, error = %causes::chain(&error), "cannot renew lease");
                }
            });
        }
    }
}
