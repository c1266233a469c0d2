//! Another CRI runtime (containerd, CRI-O, our own engine in another process) over its unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;
use coracle_proto::cri::image_service_client::ImageServiceClient;
use coracle_proto::cri::runtime_service_client::RuntimeServiceClient;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::{Duplex, Result, Runtime, RuntimeError, Session, streaming_client};

/// The kubelet's limit: statuses of a full node do not fit in gRPC's default of 4 MiB.
const MAX_MESSAGE: usize = 16 << 20;
/// For calls that only read.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// For calls that start or stop something.
const WRITE_TIMEOUT: Duration = Duration::from_secs(240);

/// A client of a CRI runtime. The connection is made on first use and again after it broke.
#[derive(Clone)]
pub struct CriRuntime {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl CriRuntime {
    /// A client of the runtime that listens on `endpoint`: a path or `unix://` + path.
    pub fn new(endpoint: &str) -> Result<Self> {
        let path = socket_path(endpoint)?;
        let channel =
            Endpoint::from_static("http://cri.invalid").connect_with_connector_lazy(service_fn(move |_| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            }));
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        })
    }
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !Path::new(path).is_absolute() {
        return Err(RuntimeError::InvalidArgument(format!(
            "runtime endpoint {endpoint:?} is not a unix:// address or an absolute path"
        )));
    }
    Ok(path.into())
}

/// Longest timeout that a gRPC header can hold.
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fn request<T>(message: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(timeout.min(MAX_TIMEOUT));
    request
}

fn missing(what: &str) -> RuntimeError {
    RuntimeError::Internal(format!("runtime answered without {what}"))
}

/// Calls one verb on a fresh handle of the shared channel.
macro_rules! call {
    ($self:ident.$service:ident.$verb:ident($message:expr), $timeout:expr) => {
        $self.$service.clone().$verb(request($message, $timeout)).await?.into_inner()
    };
}

#[async_trait]
impl Runtime for CriRuntime {
    async fn version(&self) -> Result<cri::VersionResponse> {
        Ok(call!(self.runtime.version(cri::VersionRequest { version: "v1".into() }), READ_TIMEOUT))
    }

    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse> {
        Ok(call!(self.runtime.status(cri::StatusRequest { verbose }), READ_TIMEOUT))
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        let network_config = Some(cri::NetworkConfig { pod_cidr: pod_cidr.into() });
        let message =
            cri::UpdateRuntimeConfigRequest { runtime_config: Some(cri::RuntimeConfig { network_config }) };
        call!(self.runtime.update_runtime_config(message), READ_TIMEOUT);
        Ok(())
    }

    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String> {
        let message = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        Ok(call!(self.runtime.run_pod_sandbox(message), WRITE_TIMEOUT).pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let message = cri::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        call!(self.runtime.remove_pod_sandbox(message), WRITE_TIMEOUT);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        let message = cri::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose };
        Ok(call!(self.runtime.pod_sandbox_status(message), READ_TIMEOUT))
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>> {
        Ok(call!(self.runtime.list_pod_sandbox(cri::ListPodSandboxRequest { filter }), READ_TIMEOUT).items)
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()> {
        let message =
            cri::UpdatePodSandboxResourcesRequest { pod_sandbox_id: id.into(), overhead, resources };
        call!(self.runtime.update_pod_sandbox_resources(message), READ_TIMEOUT);
        Ok(())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let message = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(call!(self.runtime.create_container(message), WRITE_TIMEOUT).container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.start_container(cri::StartContainerRequest { container_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let message = cri::StopContainerRequest { container_id: id.into(), timeout };
        call!(self.runtime.stop_container(message), grace.saturating_add(WRITE_TIMEOUT));
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.remove_container(cri::RemoveContainerRequest { container_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>> {
        Ok(call!(self.runtime.list_containers(cri::ListContainersRequest { filter }), READ_TIMEOUT)
            .containers)
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        let message = cri::ContainerStatusRequest { container_id: id.into(), verbose };
        Ok(call!(self.runtime.container_status(message), READ_TIMEOUT))
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()> {
        let message = cri::UpdateContainerResourcesRequest {
            container_id: id.into(),
            linux: Some(resources),
            ..Default::default()
        };
        call!(self.runtime.update_container_resources(message), READ_TIMEOUT);
        Ok(())
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let message = cri::ReopenContainerLogRequest { container_id: id.into() };
        call!(self.runtime.reopen_container_log(message), READ_TIMEOUT);
        Ok(())
    }

    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        let message = cri::CheckpointContainerRequest {
            container_id: id.into(),
            location: to.display().to_string(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        call!(self.runtime.checkpoint_container(message), timeout.max(WRITE_TIMEOUT));
        Ok(())
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        let message = cri::ExecSyncRequest {
            container_id: id.into(),
            cmd: command,
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        // The runtime enforces the timeout; ours only covers a runtime that does not answer.
        if timeout.is_zero() {
            return Ok(self.runtime.clone().exec_sync(message).await?.into_inner());
        }
        Ok(call!(self.runtime.exec_sync(message), timeout.saturating_add(READ_TIMEOUT)))
    }

    async fn exec(&self, message: cri::ExecRequest) -> Result<Session> {
        let wanted = streaming_client::RequestedStreams::from(&message);
        streaming_client::session(&call!(self.runtime.exec(message), READ_TIMEOUT).url, wanted).await
    }

    async fn attach(&self, message: cri::AttachRequest) -> Result<Session> {
        let wanted = streaming_client::RequestedStreams::from(&message);
        streaming_client::session(&call!(self.runtime.attach(message), READ_TIMEOUT).url, wanted).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>> {
        let message = cri::PortForwardRequest { pod_sandbox_id: sandbox.into(), port: vec![port.into()] };
        streaming_client::port(&call!(self.runtime.port_forward(message), READ_TIMEOUT).url, port).await
    }

    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats> {
        let message = cri::ContainerStatsRequest { container_id: id.into() };
        call!(self.runtime.container_stats(message), READ_TIMEOUT).stats.ok_or_else(|| missing("stats"))
    }

    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>> {
        Ok(call!(self.runtime.list_container_stats(cri::ListContainerStatsRequest { filter }), READ_TIMEOUT)
            .stats)
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats> {
        let message = cri::PodSandboxStatsRequest { pod_sandbox_id: id.into() };
        call!(self.runtime.pod_sandbox_stats(message), READ_TIMEOUT).stats.ok_or_else(|| missing("stats"))
    }

    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>> {
        let message = cri::ListPodSandboxStatsRequest { filter };
        Ok(call!(self.runtime.list_pod_sandbox_stats(message), READ_TIMEOUT).stats)
    }

    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>> {
        let events = self.runtime.clone().get_container_events(cri::GetEventsRequest {}).await?.into_inner();
        // The first error ends the stream; the caller subscribes again.
        Ok(events.take_while(|e| futures::future::ready(e.is_ok())).filter_map(async |e| e.ok()).boxed())
    }

    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String> {
        // No timeout for pulls: the runtime fails a pull without progress.
        let message = cri::PullImageRequest { image: Some(image), auth, sandbox_config };
        Ok(self.images.clone().pull_image(message).await?.into_inner().image_ref)
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        let filter = filter.map(|image| cri::ImageFilter { image: Some(image) });
        Ok(call!(self.images.list_images(cri::ListImagesRequest { filter }), READ_TIMEOUT).images)
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        let message = cri::ImageStatusRequest { image: Some(image), verbose: false };
        Ok(call!(self.images.image_status(message), READ_TIMEOUT).image)
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        call!(self.images.remove_image(cri::RemoveImageRequest { image: Some(image) }), WRITE_TIMEOUT);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        Ok(call!(self.images.image_fs_info(cri::ImageFsInfoRequest {}), READ_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn endpoints_are_unix_paths() {
        for good in ["unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"] {
            assert_eq!(socket_path(good).unwrap(), Path::new("/run/containerd/containerd.sock"));
        }
        for bad in ["tcp://127.0.0.1:1", "run/x.sock", ""] {
            assert!(socket_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_survive_the_wire() {
        for error in [
            RuntimeError::NotFound("a".into()),
            RuntimeError::AlreadyExists("b".into()),
            RuntimeError::DeadlineExceeded("c".into()),
            RuntimeError::Internal("d".into()),
        ] {
            assert_eq!(RuntimeError::from(tonic::Status::from(error.clone())), error);
        }
    }
}
