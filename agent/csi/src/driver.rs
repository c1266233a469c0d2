//! A driver on this node.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

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
///
/// ```no_run
/// # async fn example() -> Result<(), coracle_csi::CallError> {
/// use coracle_csi::Driver;
/// use std::path::Path;
///
/// let driver = Driver::new(Path::new("/var/lib/kubelet/plugins/example/csi.sock"));
/// let node = driver.info().await?.node_id;
/// println!("{node} stages volumes: {}", driver.capabilities().await?.stage);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Driver {
    socket: PathBuf,
    client: NodeClient<Channel>,
    observer: Option<Observer>,
}

/// Is told of every call of a driver: its name, how long it took, and the code of its answer.
pub type Observer = Arc<dyn Fn(&'static str, Duration, Code) + Send + Sync>;

impl Driver {
    /// Connects on first use, and again after the driver was restarted.
    pub fn new(socket: &Path) -> Self {
        let client = NodeClient::new(channel(socket.to_owned())).max_decoding_message_size(MAX_MESSAGE);
        Self { socket: socket.to_owned(), client, observer: None }
    }

    /// Tells an observer of every call.
    #[must_use]
    pub fn observed(self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    async fn answer<T>(
        &self,
        call: &'static str,
        limit: Duration,
        request: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let begun = Instant::now();
        let result = answer(call, &self.socket, limit, request).await;
        if let Some(observer) = &self.observer {
            observer(call, begun.elapsed(), result.as_ref().map_or_else(CallError::code, |_| Code::Ok));
        }
        result
    }

    /// Where the driver listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Name, limit and topology of this node, for the driver.
    pub async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_info(NodeGetInfoRequest {});
        self.answer("NodeGetInfo", READ_LIMIT, call).await
    }

    /// What the driver can do.
    pub async fn capabilities(&self) -> Result<Capabilities, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_capabilities(NodeGetCapabilitiesRequest {});
        let found = self.answer("NodeGetCapabilities", READ_LIMIT, call).await?;
        Ok(Capabilities::of(&found.capabilities))
    }

    /// Mounts a volume for all pods of the node.
    pub async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_stage_volume(request);
        self.answer("NodeStageVolume", WRITE_LIMIT, call).await.map(drop)
    }

    /// The reverse of [`Self::stage`]. A volume that is not there is unstaged.
    pub async fn unstage(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_unstage_volume(NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: path.to_string_lossy().into_owned(),
        });
        known(self.answer("NodeUnstageVolume", WRITE_LIMIT, call).await.map(drop))
    }

    /// Mounts a volume for one pod.
    pub async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_publish_volume(request);
        self.answer("NodePublishVolume", WRITE_LIMIT, call).await.map(drop)
    }

    /// The reverse of [`Self::publish`]. A volume that is not there is unpublished.
    pub async fn unpublish(&self, volume: &str, path: &Path) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.node_unpublish_volume(NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: path.to_string_lossy().into_owned(),
        });
        known(self.answer("NodeUnpublishVolume", WRITE_LIMIT, call).await.map(drop))
    }

    /// How full a volume is.
    pub async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_get_volume_stats(request);
        self.answer("NodeGetVolumeStats", READ_LIMIT, call).await
    }

    /// Makes the file system of a volume as large as the volume.
    pub async fn expand(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, CallError> {
        let mut client = self.client.clone();
        let call = client.node_expand_volume(request);
        self.answer("NodeExpandVolume", WRITE_LIMIT, call).await
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
        let (told, calls) = std::sync::mpsc::channel();
        let observer: Observer =
            Arc::new(move |call: &'static str, _: Duration, code: Code| told.send((call, code)).unwrap());
        let driver = Driver::new(&temp.path().join("csi.sock")).observed(observer);
        let error = driver.unpublish("v", Path::new("/t")).await.unwrap_err();
        assert_eq!(calls.try_recv(), Ok(("NodeUnpublishVolume", Code::Unavailable)));
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
