//! Asks an agent to delete the directory of a local volume.

use super::agent::Nodes;
use async_trait::async_trait;
use coracle_client::node_volumes::{NodeVolumeError, NodeVolumes};
use coracle_proto::local_path::API;
use http::Method;
use std::time::Duration;

/// A large volume takes its time; a node that is still at it is asked again later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[async_trait]
impl NodeVolumes for Nodes {
    async fn remove(&self, node: &str, volume: &str) -> Result<(), NodeVolumeError> {
        let path = format!("{API}/{volume}");
        match tokio::time::timeout(REQUEST_TIMEOUT, self.ask(Method::DELETE, node, &path)).await {
            Ok(answer) => Ok(answer.map(drop)?),
            Err(_) => Err(NodeVolumeError::Pending { node: node.to_owned(), volume: volume.to_owned() }),
        }
    }
}
