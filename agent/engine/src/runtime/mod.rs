//! The interface between pod workers and a container runtime, in CRI's terms.
//!
//! Two runtimes implement it: the in-process [`crate::Engine`] and [`CriRuntime`], which
//! speaks gRPC to any CRI runtime on a unix socket.

pub use coracle_keeper::wire::TerminalSize;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

// Another CRI runtime over a unix socket.
pub mod client;
// Exec, attach and port-forward to another CRI runtime, over WebSocket.
pub mod streaming_client;
// Counts and times operations of a runtime.
pub mod instrumented;

pub use client::CriRuntime;

/// Annotation of imported images: pulling their name uses the local image.
pub const IMPORTED: &str = "coracle/imported";
/// Annotation of a pull that contacts the registry even if the image was imported.
pub const ASK_REGISTRY: &str = "coracle/ask-registry";

/// Errors of a runtime, by what the caller can do about them. Messages follow containerd's wording.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum RuntimeError {
    /// The sandbox, container or image does not exist. Final for this id.
    #[error("{0}")]
    NotFound(String),
    /// The request can never work as it is.
    #[error("{0}")]
    InvalidArgument(String),
    /// A sandbox or container with this name and attempt exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// The object is in the wrong state for this verb.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The caller's deadline is exceeded.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The registry or the host refused the credentials.
    #[error("{0}")]
    PermissionDenied(String),
    /// Disk, address range or another limited resource is exhausted; retry after something is freed.
    #[error("{0}")]
    ResourceExhausted(String),
    /// The runtime cannot be reached or is not ready; retry.
    #[error("{0}")]
    Unavailable(String),
    /// The runtime does not have this verb.
    #[error("{0}")]
    Unimplemented(String),
    /// Anything else; retrying may help.
    #[error("{0}")]
    Internal(String),
}

impl RuntimeError {
    /// True when the named object does not exist, so that idempotent removal can go on.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}

impl From<tonic::Status> for RuntimeError {
    fn from(status: tonic::Status) -> Self {
        use tonic::Code;
        let message = status.message().to_owned();
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            Code::InvalidArgument | Code::OutOfRange => Self::InvalidArgument(message),
            Code::AlreadyExists => Self::AlreadyExists(message),
            Code::FailedPrecondition => Self::FailedPrecondition(message),
            Code::DeadlineExceeded => Self::DeadlineExceeded(message),
            Code::PermissionDenied | Code::Unauthenticated => Self::PermissionDenied(message),
            Code::ResourceExhausted => Self::ResourceExhausted(message),
            Code::Unavailable => Self::Unavailable(message),
            Code::Unimplemented => Self::Unimplemented(message),
            _ => Self::Internal(message),
        }
    }
}

impl From<RuntimeError> for tonic::Status {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::NotFound(m) => Self::not_found(m),
            RuntimeError::InvalidArgument(m) => Self::invalid_argument(m),
            RuntimeError::AlreadyExists(m) => Self::already_exists(m),
            RuntimeError::FailedPrecondition(m) => Self::failed_precondition(m),
            RuntimeError::DeadlineExceeded(m) => Self::deadline_exceeded(m),
            RuntimeError::PermissionDenied(m) => Self::permission_denied(m),
            RuntimeError::ResourceExhausted(m) => Self::resource_exhausted(m),
            RuntimeError::Unavailable(m) => Self::unavailable(m),
            RuntimeError::Unimplemented(m) => Self::unimplemented(m),
            RuntimeError::Internal(m) => Self::unknown(m),
        }
    }
}

/// Result of every verb of a [`Runtime`].
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// A byte stream out of a process.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;
/// A byte stream into a process; dropping it closes the process's stdin.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of one forwarded connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A running exec or attach session. Streams that were not asked for are `None`; with a terminal, stderr is in stdout.
///
/// Read both outputs to their ends, then await `exit`: an exit that is not waited for still ends the session.
/// Dropping everything hangs up: an exec'd process gets EOF and SIGPIPE, an attached container is not touched.
pub struct Session {
    /// Into the process.
    pub stdin: Option<Input>,
    /// Out of the process.
    pub stdout: Option<Output>,
    /// Errors of the process.
    pub stderr: Option<Output>,
    /// Terminal sizes; sending without a terminal does nothing.
    pub resize: mpsc::Sender<TerminalSize>,
    /// Exit code of the exec'd process; for attach, 0 when the streams ended.
    pub exit: oneshot::Receiver<Result<i32>>,
}

/// Delivers the configuration of a sandbox's first container; if the sender is dropped, no container is precreated.
pub type FirstContainer = oneshot::Receiver<cri::ContainerConfig>;

/// What pod workers need from a container runtime.
///
/// Stop and remove verbs are idempotent and succeed for ids that are gone; create verbs are not retried inside:
/// an error leaves nothing behind that a later remove or restart does not clean.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Name and version of the runtime.
    async fn version(&self) -> Result<cri::VersionResponse>;
    /// Conditions RuntimeReady and NetworkReady, handlers and features.
    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse>;
    /// Sets the node's pod CIDR.
    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()>;

    /// Creates and starts a sandbox with its network; returns its id.
    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String>;
    /// Whether `run_pod_sandbox_precreating` can create the first container.
    fn can_precreate(&self) -> bool {
        false
    }
    /// As `run_pod_sandbox`, and creates the first container in parallel with the sandbox's network; returns the ids of both.
    ///
    /// Without a second id no container was created: call `create_container`, which creates it or returns the error.
    async fn run_pod_sandbox_precreating(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: FirstContainer,
    ) -> Result<(String, Option<String>)> {
        drop(first);
        Ok((self.run_pod_sandbox(config, handler).await?, None))
    }
    /// Kills all containers of the sandbox and releases its network.
    async fn stop_pod_sandbox(&self, id: &str) -> Result<()>;
    /// Removes the sandbox and its containers.
    async fn remove_pod_sandbox(&self, id: &str) -> Result<()>;
    /// Status of one sandbox; with containers' statuses where the runtime can give them.
    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse>;
    /// Sandboxes that match.
    async fn list_pod_sandboxes(&self, filter: Option<cri::PodSandboxFilter>)
    -> Result<Vec<cri::PodSandbox>>;
    /// Changes the limits of a sandbox.
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()>;

    /// Prepares a container (root filesystem, configuration) without running it; returns its id.
    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String>;
    /// Runs a created container.
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Sends the stop signal, waits `grace`, kills. Returns when the container is exited.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()>;
    /// Kills and removes the container with its root filesystem; its log stays.
    async fn remove_container(&self, id: &str) -> Result<()>;
    /// Containers that match.
    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>>;
    /// Status of one container.
    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse>;
    /// Changes limits of a container; zero and empty fields stay as they are.
    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()>;
    /// Opens the log path again, after the caller moved the old file away.
    async fn reopen_container_log(&self, id: &str) -> Result<()>;
    /// Writes the state of a running container to an archive; a zero `timeout` is the runtime's own.
    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()>;

    /// Runs a command to its end; a zero `timeout` is none.
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse>;
    /// Starts a command with its streams.
    async fn exec(&self, request: cri::ExecRequest) -> Result<Session>;
    /// Joins the streams of a running container.
    async fn attach(&self, request: cri::AttachRequest) -> Result<Session>;
    /// Connects to a port on the sandbox's loopback.
    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>>;

    /// Usage of one container.
    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats>;
    /// Usage of the containers that match.
    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>>;
    /// Usage of one sandbox and its containers.
    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats>;
    /// Usage of the sandboxes that match.
    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>>;

    /// Created, started, stopped and deleted containers from now on; the stream ends when the runtime goes away.
    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>>;

    /// Pulls an image; returns the reference to run it by.
    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String>;
    /// Images of the node.
    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>>;
    /// One image, `None` when it is not on the node.
    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>>;
    /// Additional information about an image as JSON; null if there is none.
    async fn image_details(&self, _image: cri::ImageSpec) -> Result<serde_json::Value> {
        Ok(serde_json::Value::Null)
    }
    /// Removes an image; succeeds if it does not exist.
    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()>;
    /// Disk used by images and by containers' writable layers.
    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse>;
}
