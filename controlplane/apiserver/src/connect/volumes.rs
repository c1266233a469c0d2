//! The nodes' own disks: an agent is asked to remove what it has of a volume.

use super::node::Nodes;
use async_trait::async_trait;
use coracle_client::outside::Disks;
use coracle_proto::local_path::API;
use http::Method;
use std::time::Duration;

/// A large volume takes its time; a node that is still at it is asked again later.
const PATIENCE: Duration = Duration::from_secs(60);

#[async_trait]
impl Disks for Nodes {
    async fn remove(&self, node: &str, volume: &str) -> Result<(), String> {
        let path = format!("{API}/{volume}");
        match tokio::time::timeout(PATIENCE, self.ask(Method::DELETE, node, &path)).await {
            Ok(answer) => answer.map(drop).map_err(|error| error.message),
            Err(_) => Err(format!("{node} is still removing {volume}")),
        }
    }
}
