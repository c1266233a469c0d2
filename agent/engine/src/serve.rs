//! Serves a [`Runtime`] as CRI on a unix socket.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;
use coracle_proto::cri::image_service_server::{ImageService, ImageServiceServer};
use coracle_proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use futures::{Stream, StreamExt};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::metrics;
use super::streaming::Streaming;
use crate::runtime::Runtime;

/// The kubelet's limit.
const MAX_MESSAGE: usize = 16 << 20;

type Answer<T> = Result<Response<T>, Status>;

/// The two CRI services of a runtime.
#[derive(Clone)]
struct Service {
    runtime: Arc<dyn Runtime>,
    streaming: Arc<Streaming>,
}

/// Why CRI is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process is serving the socket.
    #[error("{} is being served", socket.display())]
    InUse {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The socket, or the port of the streaming server, cannot be listened on.
    #[error(transparent)]
    Listen(#[from] io::Error),
    /// The gRPC server failed.
    #[error(transparent)]
    Server(#[from] tonic::transport::Error),
}

/// Serves until `stop` is done. A stale socket of an engine that is gone is replaced.
pub async fn serve(
    runtime: Arc<dyn Runtime>,
    socket: &Path,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let listener = listen(socket).await?;
    let (streaming, streams) = Streaming::listen(runtime.clone()).await?;
    // In the server's task: ends with the server and is restarted with it.
    let accept = streaming.clone().accept(streams);
    let service = Service { runtime, streaming };
    let runtime = RuntimeServiceServer::new(service.clone()).max_decoding_message_size(MAX_MESSAGE);
    let images = ImageServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE);
    let served = tonic::transport::Server::builder()
        .add_service(runtime)
        .add_service(images)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop);
    tokio::select! {
        served = served => Ok(served?),
        () = accept => Ok(()),
    }
}

/// How long to wait for a socket that a child of a killed engine holds until it execs.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens on a socket. One that a process which is gone has left is replaced.
pub async fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let begun = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(path).is_ok() {
        if begun.elapsed() < BIND_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        return Err(ServeError::InUse { socket: path.to_owned() });
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0) as u64)
}

fn required<T>(value: Option<T>, what: &str) -> Result<T, Status> {
    value.ok_or_else(|| Status::invalid_argument(format!("{what} is required")))
}

fn answer<T>(message: T) -> Answer<T> {
    Ok(Response::new(message))
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        answer(self.runtime.version().await?)
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Answer<cri::RunPodSandboxResponse> {
        let r = request.into_inner();
        let config = required(r.config, "sandbox config")?;
        answer(cri::RunPodSandboxResponse {
            pod_sandbox_id: self.runtime.run_pod_sandbox(config, &r.runtime_handler).await?,
        })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        self.runtime.stop_pod_sandbox(&request.into_inner().pod_sandbox_id).await?;
        answer(cri::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        self.runtime.remove_pod_sandbox(&request.into_inner().pod_sandbox_id).await?;
        answer(cri::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        let r = request.into_inner();
        answer(self.runtime.pod_sandbox_status(&r.pod_sandbox_id, r.verbose).await?)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        let items = self.runtime.list_pod_sandboxes(request.into_inner().filter).await?;
        answer(cri::ListPodSandboxResponse { items })
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        let r = request.into_inner();
        let config = required(r.config, "container config")?;
        let sandbox = r.sandbox_config.unwrap_or_default();
        answer(cri::CreateContainerResponse {
            container_id: self.runtime.create_container(&r.pod_sandbox_id, config, sandbox).await?,
        })
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        self.runtime.start_container(&request.into_inner().container_id).await?;
        answer(cri::StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        let r = request.into_inner();
        self.runtime.stop_container(&r.container_id, seconds(r.timeout)).await?;
        answer(cri::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        self.runtime.remove_container(&request.into_inner().container_id).await?;
        answer(cri::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        let containers = self.runtime.list_containers(request.into_inner().filter).await?;
        answer(cri::ListContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let r = request.into_inner();
        answer(self.runtime.container_status(&r.container_id, r.verbose).await?)
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        let r = request.into_inner();
        let resources = r.linux.unwrap_or_default();
        self.runtime.update_container_resources(&r.container_id, resources).await?;
        answer(cri::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Answer<cri::ReopenContainerLogResponse> {
        self.runtime.reopen_container_log(&request.into_inner().container_id).await?;
        answer(cri::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<cri::ExecSyncRequest>) -> Answer<cri::ExecSyncResponse> {
        let r = request.into_inner();
        answer(self.runtime.exec_sync(&r.container_id, r.cmd, seconds(r.timeout)).await?)
    }

    async fn exec(&self, request: Request<cri::ExecRequest>) -> Answer<cri::ExecResponse> {
        let r = request.into_inner();
        if r.tty && r.stderr {
            return Err(Status::invalid_argument("tty and stderr cannot both be true"));
        }
        answer(cri::ExecResponse { url: self.streaming.exec(r) })
    }

    async fn attach(&self, request: Request<cri::AttachRequest>) -> Answer<cri::AttachResponse> {
        let r = request.into_inner();
        if r.tty && r.stderr {
            return Err(Status::invalid_argument("tty and stderr cannot both be true"));
        }
        answer(cri::AttachResponse { url: self.streaming.attach(r) })
    }

    async fn port_forward(
        &self,
        request: Request<cri::PortForwardRequest>,
    ) -> Answer<cri::PortForwardResponse> {
        answer(cri::PortForwardResponse { url: self.streaming.port_forward(request.into_inner()) })
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Answer<cri::ContainerStatsResponse> {
        let stats = self.runtime.container_stats(&request.into_inner().container_id).await?;
        answer(cri::ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Answer<cri::ListContainerStatsResponse> {
        let stats = self.runtime.list_container_stats(request.into_inner().filter).await?;
        answer(cri::ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<cri::PodSandboxStatsRequest>,
    ) -> Answer<cri::PodSandboxStatsResponse> {
        let stats = self.runtime.pod_sandbox_stats(&request.into_inner().pod_sandbox_id).await?;
        answer(cri::PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Answer<cri::ListPodSandboxStatsResponse> {
        let stats = self.runtime.list_pod_sandbox_stats(request.into_inner().filter).await?;
        answer(cri::ListPodSandboxStatsResponse { stats })
    }

    async fn update_runtime_config(
        &self,
        request: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Answer<cri::UpdateRuntimeConfigResponse> {
        let config = request.into_inner().runtime_config.and_then(|c| c.network_config).unwrap_or_default();
        self.runtime.update_runtime_config(&config.pod_cidr).await?;
        answer(cri::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        answer(self.runtime.status(request.into_inner().verbose).await?)
    }

    async fn checkpoint_container(
        &self,
        request: Request<cri::CheckpointContainerRequest>,
    ) -> Answer<cri::CheckpointContainerResponse> {
        let cri::CheckpointContainerRequest { container_id, location, timeout } = request.into_inner();
        let timeout = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        self.runtime.checkpoint_container(&container_id, Path::new(&location), timeout).await?;
        answer(cri::CheckpointContainerResponse {})
    }

    type GetContainerEventsStream =
        Pin<Box<dyn Stream<Item = Result<cri::ContainerEventResponse, Status>> + Send>>;

    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        answer(self.runtime.events().await?.map(Ok).boxed())
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<cri::ListMetricDescriptorsRequest>,
    ) -> Answer<cri::ListMetricDescriptorsResponse> {
        answer(cri::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<cri::ListPodSandboxMetricsRequest>,
    ) -> Answer<cri::ListPodSandboxMetricsResponse> {
        let stats = self.runtime.list_pod_sandbox_stats(None).await?;
        let containers = self.runtime.list_containers(None).await?.into_iter();
        let named = |image: cri::ImageSpec| {
            if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
        };
        let images = containers.filter_map(|c| Some((c.id, named(c.image?)))).collect();
        answer(cri::ListPodSandboxMetricsResponse { pod_metrics: metrics::rows(&stats, &images) })
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Answer<cri::RuntimeConfigResponse> {
        let cgroup_driver = cri::CgroupDriver::Cgroupfs.into();
        answer(cri::RuntimeConfigResponse { linux: Some(cri::LinuxRuntimeConfiguration { cgroup_driver }) })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<cri::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<cri::UpdatePodSandboxResourcesResponse> {
        let r = request.into_inner();
        self.runtime.update_pod_sandbox_resources(&r.pod_sandbox_id, r.overhead, r.resources).await?;
        answer(cri::UpdatePodSandboxResourcesResponse {})
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(&self, request: Request<cri::ListImagesRequest>) -> Answer<cri::ListImagesResponse> {
        let filter = request.into_inner().filter.and_then(|f| f.image);
        answer(cri::ListImagesResponse { images: self.runtime.list_images(filter).await? })
    }

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Answer<cri::ImageStatusResponse> {
        let request = request.into_inner();
        let wanted = required(request.image, "image")?;
        let image = self.runtime.image_status(wanted.clone()).await?;
        let mut info = HashMap::new();
        if request.verbose && image.is_some() {
            let details = self.runtime.image_details(wanted).await?;
            info.extend((!details.is_null()).then(|| ("info".to_owned(), details.to_string())));
        }
        answer(cri::ImageStatusResponse { image, info })
    }

    async fn pull_image(&self, request: Request<cri::PullImageRequest>) -> Answer<cri::PullImageResponse> {
        let r = request.into_inner();
        let image = required(r.image, "image")?;
        let image_ref = self.runtime.pull_image(image, r.auth, r.sandbox_config).await?;
        answer(cri::PullImageResponse { image_ref })
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Answer<cri::RemoveImageResponse> {
        self.runtime.remove_image(required(request.into_inner().image, "image")?).await?;
        answer(cri::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: Request<cri::ImageFsInfoRequest>) -> Answer<cri::ImageFsInfoResponse> {
        answer(self.runtime.image_fs_info().await?)
    }
}
