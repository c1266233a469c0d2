//! Removal of volume directories from nodes. The API server implements it by calling the node's agent.

use async_trait::async_trait;
use coracle_proto::status::ApiError;

/// Why a node has not removed the directory of a volume.
#[derive(Debug, thiserror::Error)]
pub enum NodeVolumeError {
    /// The node refused, or was not reached.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The node did not finish within the timeout; ask again later.
    #[error("{node} is still removing {volume}")]
    Pending {
        /// The node.
        node: String,
        /// The volume.
        volume: String,
    },
}

/// Volume directories on the disks of nodes.
#[async_trait]
pub trait NodeVolumes: Send + Sync {
    /// Removes the directory of a volume from a node. Succeeds when there is none.
    async fn remove(&self, node: &str, volume: &str) -> Result<(), NodeVolumeError>;
}
