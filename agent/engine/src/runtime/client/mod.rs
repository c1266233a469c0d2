//! Another CRI runtime (containerd, CRI-O, our own engine in another process) over its unix socket.

/// Calls one verb on a fresh handle of the shared channel.
macro_rules! call {
    ($self:ident.$service:ident.$verb:ident($message:expr), $timeout:expr) => {
        $self.$service.clone().$verb(request($message, $timeout)).await?.into_inner()
    };
}

// The verbs, by what they are about; after the macro that they use.
mod sandboxes;
mod containers;
mod execs;
mod images;
mod stats;

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

use super::{Result, Runtime, RuntimeError};

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
    /// Checks the form of an endpoint.
    pub fn check(endpoint: &str) -> Result<()> {
        socket_path(endpoint).map(drop)
    }

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

impl CriRuntime {
    /// How the runtime makes cgroups; `None` if it does not say.
    pub async fn cgroup_driver(&self) -> Result<Option<cri::CgroupDriver>> {
        let message = request(cri::RuntimeConfigRequest {}, READ_TIMEOUT);
        match self.runtime.clone().runtime_config(message).await.map_err(RuntimeError::from) {
            Ok(answer) => Ok(answer.into_inner().linux.map(|linux| linux.cgroup_driver())),
            Err(RuntimeError::Unimplemented(_)) => Ok(None),
            Err(error) => Err(error),
        }
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

    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>> {
        let events = self.runtime.clone().get_container_events(cri::GetEventsRequest {}).await?.into_inner();
        // The first error ends the stream; the caller subscribes again.
        Ok(events.take_while(|e| futures::future::ready(e.is_ok())).filter_map(async |e| e.ok()).boxed())
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
