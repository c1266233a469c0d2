//! Plugins that register themselves: the service on `kubelet.sock`, and a task per plugin that follows its devices.

use coracle_cli::causes;
use coracle_devices::Plugin;
use coracle_devices::v1beta1::registration_server::{Registration, RegistrationServer};
use coracle_devices::v1beta1::{DevicePluginOptions, Empty, RegisterRequest};
use coracle_engine::serve::{self, ServeError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::names::is_extended_resource;
use super::state::Devices;

const VERSION: &str = "v1beta1";
/// How long a plugin that has registered may need to listen.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const DIAL_RETRY: Duration = Duration::from_millis(100);
/// Registrations are short.
const MAX_REQUEST: usize = 64 << 10;
const RETRY: Duration = Duration::from_secs(2);

/// Why a plugin is not registered; it is told.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Another version of the API.
    #[error(
        "requested API version {version:?} is not supported by this node. Supported version is {VERSION:?}"
    )]
    Version {
        /// Asked for.
        version: String,
    },
    /// Not the name of an extended resource.
    #[error("the ResourceName {name:?} is invalid")]
    Name {
        /// Asked for.
        name: String,
    },
    /// A socket outside of the directory of plugins.
    #[error("the endpoint {endpoint:?} of {name:?} is not the name of a socket in {}", .dir.display())]
    Endpoint {
        /// Extended resource.
        name: String,
        /// Asked for.
        endpoint: String,
        /// Directory of plugins.
        dir: PathBuf,
    },
    /// Too many resources.
    #[error("{name:?} is not registered: the node has too many resources of device plugins")]
    TooMany {
        /// Extended resource.
        name: String,
    },
    /// Nobody listens on the socket.
    #[error("failed to dial device plugin with socketPath {}", .socket.display())]
    Dial {
        /// The plugin's socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Registers plugins.
#[derive(Clone)]
pub struct PluginRegistration {
    devices: Devices,
    /// The task that follows a plugin, by resource.
    tasks: Arc<Mutex<BTreeMap<String, tokio::task::AbortHandle>>>,
}

impl PluginRegistration {
    /// Registers into `devices`.
    pub fn new(devices: Devices) -> Self {
        Self { devices, tasks: Arc::default() }
    }

    /// Serves for ever. Sockets of plugins that registered with an earlier agent are removed: plugins watch the directory,
    /// and register again.
    pub async fn run(self) {
        let socket = self.devices.paths().registration();
        loop {
            if let Err(error) = self.clone().serve(&socket).await {
                tracing::warn!(socket = %socket.display(), error = %causes::chain(&error), "registration of device plugins not served, will retry");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn serve(self, socket: &Path) -> Result<(), ServeError> {
        let dir = self.devices.paths().plugins();
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir)?;
        remove_sockets(&dir, socket);
        let listener = serve::listen(socket).await?;
        let service = RegistrationServer::new(self.clone()).max_decoding_message_size(MAX_REQUEST);
        let served = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(UnixListenerStream::new(listener));
        tokio::select! {
            served = served => Ok(served?),
            () = self.expire() => Ok(()),
        }
    }

    /// Removes the resources of plugins that do not come back.
    async fn expire(&self) {
        loop {
            let expiry = self.devices.expiry.notified();
            match self.devices.expire() {
                Some(at) => {
                    let at = at.max(Instant::now() + Duration::from_millis(10));
                    tokio::select! {
                        () = expiry => {}
                        () = tokio::time::sleep_until(at.into()) => {}
                    }
                }
                None => expiry.await,
            }
        }
    }

    /// Registers a plugin that listens on `socket`, and follows its devices.
    pub async fn add(
        &self,
        resource: &str,
        socket: PathBuf,
        options: Option<DevicePluginOptions>,
    ) -> Result<(), RegistrationError> {
        if !is_extended_resource(resource) {
            return Err(RegistrationError::Name { name: resource.to_owned() });
        }
        if !self.devices.has_room_for(resource) {
            return Err(RegistrationError::TooMany { name: resource.to_owned() });
        }
        dial(&socket).await.map_err(|source| RegistrationError::Dial { socket: socket.clone(), source })?;
        let plugin = Plugin::new(&socket);
        let options = options.unwrap_or_default();
        let mut tasks = self.tasks.lock();
        let generation = self.devices.connect(resource, plugin.clone(), options);
        tracing::info!(resource, socket = %socket.display(), "device plugin registered");
        let task = tokio::spawn(follow(self.devices.clone(), resource.to_owned(), plugin, generation));
        if let Some(old) = tasks.insert(resource.to_owned(), task.abort_handle()) {
            old.abort();
        }
        Ok(())
    }

    async fn register(&self, request: RegisterRequest) -> Result<(), RegistrationError> {
        let RegisterRequest { version, endpoint, resource_name: name, options } = request;
        if version != VERSION {
            return Err(RegistrationError::Version { version });
        }
        let dir = self.devices.paths().plugins();
        // A name, not a path to somewhere else.
        if endpoint.is_empty() || endpoint.contains('/') || matches!(endpoint.as_str(), "." | "..") {
            return Err(RegistrationError::Endpoint { name, endpoint, dir });
        }
        self.add(&name, dir.join(endpoint), options).await
    }
}

#[tonic::async_trait]
impl Registration for PluginRegistration {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        match PluginRegistration::register(self, request.into_inner()).await {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(error) => {
                let text = causes::chain(&error).to_string();
                tracing::warn!(error = text, "device plugin not registered");
                Err(Status::invalid_argument(text))
            }
        }
    }
}

/// Waits until somebody listens.
async fn dial(socket: &Path) -> io::Result<()> {
    let begun = tokio::time::Instant::now();
    loop {
        match UnixStream::connect(socket).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() >= DIAL_LIMIT => return Err(error),
            Err(_) => tokio::time::sleep(DIAL_RETRY).await,
        }
    }
}

/// Follows the devices of a plugin until it is gone; it registers again when it is back.
async fn follow(devices: Devices, resource: String, plugin: Plugin, generation: u64) {
    let result = async {
        let mut lists = plugin.devices().await?;
        while let Some(list) = lists.next().await? {
            if !devices.list(&resource, generation, list) {
                break;
            }
        }
        Ok::<(), coracle_devices::CallError>(())
    };
    match result.await {
        Ok(()) => tracing::warn!(resource, "device plugin has ended, its devices are unhealthy"),
        Err(error) => {
            tracing::warn!(resource, error = %causes::chain(&error), "device plugin is gone, its devices are unhealthy");
        }
    }
    devices.disconnect(&resource, generation);
}

/// Removes the sockets of a directory but one. Their plugins notice, and register again.
fn remove_sockets(dir: &Path, own: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_of_plugin = |entry: &std::fs::DirEntry| {
        entry.path() != own && entry.file_type().is_ok_and(|kind| kind.is_socket())
    };
    for entry in entries.filter(is_of_plugin) {
        if let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::warn!(socket = %entry.path().display(), %error, "socket of a device plugin not removed");
        }
    }
}
