//! A driver on this node.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;

use crate::CallError;
use crate::socket::{MAX_MESSAGE, answer, channel};
use crate::v1::node_client::NodeClient;
use crate::v1::node_service_capability::{Type, rpc};
use crate::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeServiceCapability, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};

/// For calls that only read.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// For calls that mount, unmount or expand.
const WRITE_LIMIT: Duration = Duration::from_secs(120);

/// What a driver can do on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes are staged once for all pods of the node.
    pub stage: bool,
    /// It knows how full a volume is.
    pub stats: bool,
    /// It expands file systems.
    pub expand: bool,
    /// It tells one writer from several on a node.
    pub single_writer: bool,
    /// It gives files to a group when it mounts.
    pub mount_group: bool,
    /// It knows whether something is wrong with a volume.
    pub condition: bool,
}

impl Capabilities {
    fn of(list: &[NodeServiceCapability]) -> Self {
        let has = |wanted: rpc::Type| {
            list.iter().any(|one| matches!(&one.r#type, Some(Type::Rpc(rpc)) if rpc.r#type() == wanted))
        };
        Self {
            stage: has(rpc::Type::StageUnstageVolume),
            stats: has(rpc::Type::GetVolumeStats),
            expand: has(rpc::Type::ExpandVolume),
            single_writer: has(rpc::Type::SingleNodeMultiWriter),
            mount_group: has(rpc::Type::VolumeMountGroup),
            condition: has(rpc::Type::VolumeCondition),
        }
    }
}

/// The Node service of a driver. Every call ends: with an answer, an error or a timeout.
#[derive(Clone)]
pub struct Driver {
    socket: PathBuf,
    client: NodeClient<Channel>,
}

impl Driver {
    /// Connects on first use, and again after the driver was restarted.
    pub fn new(socket: &Path) -> Self {
        let client = NodeClient::new(channel(socket.to_owned())).max_decoding_message_size(MAX_MESSAGE);
        Self { socket: socket.to_owned(), client }
    }

    /// Where the driver listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Name, limit and topology of this node, for the driver.
    pub async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_info(NodeGetInfoRequest {});
        answer("NodeGetInfo", &self.socket, READ_LIMIT, call).await
    }

    /// What the driver can do.
    pub async fn capabilities(&self) -> Result<Capabilities, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_capabilities(NodeGetCapabilitiesRequest {});
        let found = answer("NodeGetCapabilities", &self.socket, READ_LIMIT, call).await?;
        Ok(Capabilities::of(&found.capabilities))
    }

    /// Mounts a volume for all pods of the node.
    pub async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_stage_volume(request);
        answer("NodeStageVolume", &self.socket, WRITE_LIMIT, call).await.map(drop)
    }

    /// The reverse of [`Self::stage`]. A volume that is not there is unstaged.
    pub async fn unstage(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_unstage_volume(NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: path.to_string_lossy().into_owned(),
        });
        known(answer("NodeUnstageVolume", &self.socket, WRITE_LIMIT, call).await.map(drop))
    }

    /// Mounts a volume for one pod.
    pub async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_publish_volume(request);
        answer("NodePublishVolume", &self.socket, WRITE_LIMIT, call).await.map(drop)
    }

    /// The reverse of [`Self::publish`]. A volume that is not there is unpublished.
    pub async fn unpublish(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_unpublish_volume(NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: path.to_string_lossy().into_owned(),
        });
        known(answer("NodeUnpublishVolume", &self.socket, WRITE_LIMIT, call).await.map(drop))
    }

    /// How full a volume is.
    pub async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_volume_stats(request);
        answer("NodeGetVolumeStats", &self.socket, READ_LIMIT, call).await
    }

    /// Makes the file system of a volume as large as the volume.
    pub async fn expand(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_expand_volume(request);
        answer("NodeExpandVolume", &self.socket, WRITE_LIMIT, call).await
    }
}

/// What the driver does not know needs no removal.
fn known(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::v1::node_service_capability::Rpc;

    #[test]
    fn unknown_capabilities_are_ignored() {
        let one = |number: i32| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let list = [one(1), one(6), one(77), NodeServiceCapability { r#type: None }];
        let wanted = Capabilities { stage: true, mount_group: true, ..Capabilities::default() };
        assert_eq!(Capabilities::of(&list), wanted);
    }

    #[tokio::test]
    async fn a_driver_that_is_away_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let driver = Driver::new(&temp.path().join("csi.sock"));
        let error = driver.unpublish("v", Path::new("/t")).await.unwrap_err();
        assert!(matches!(&error, CallError::Unreachable { call: "NodeUnpublishVolume", .. }), "{error}");
        assert!(error.to_string().contains("csi.sock"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_does_not_answer_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("csi.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let error = Driver::new(&path).unstage("v", Path::new("/t")).await.unwrap_err();
        assert!(matches!(&error, CallError::Timeout { call: "NodeUnstageVolume", .. }), "{error}");
    }
}
