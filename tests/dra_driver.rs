//! A driver of dynamic resource allocation. It notes its calls, and fails or waits when told.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coracle_csi::pluginregistration::registration_server::{Registration, RegistrationServer};
use coracle_csi::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use coracle_devices::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use coracle_devices::dra::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// Name of the driver.
pub const DRIVER: &str = "dra.example";

struct State {
    endpoint: PathBuf,
    calls: Mutex<Vec<String>>,
    fails: Mutex<bool>,
    /// Answers are given while this is `false`.
    waits: watch::Sender<bool>,
    /// Qualified name of the CDI device that it gives.
    cdi: String,
}

/// The driver; away when dropped.
pub struct DraDriver {
    state: Arc<State>,
    registration: PathBuf,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl DraDriver {
    /// Prepares a driver for an agent with this `--kubelet-dir`; it does not run yet.
    pub fn new(kubelet_dir: &Path, cdi: &str) -> Self {
        let plugin = kubelet_dir.join("plugins").join(DRIVER);
        fs::create_dir_all(&plugin).unwrap();
        let state = State {
            endpoint: plugin.join("dra.sock"),
            calls: Mutex::default(),
            fails: Mutex::default(),
            waits: watch::Sender::new(false),
            cdi: cdi.to_owned(),
        };
        let registration = kubelet_dir.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
        Self { state: Arc::new(state), registration, running: None }
    }

    /// Serves, and registers with the agent.
    pub fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let (state, registration) = (self.state.clone(), self.registration.clone());
        fs::create_dir_all(registration.parent().unwrap()).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async move {
                let _ = fs::remove_file(&state.endpoint);
                let _ = fs::remove_file(&registration);
                let plugin = UnixListenerStream::new(UnixListener::bind(&state.endpoint).unwrap());
                let register = UnixListenerStream::new(UnixListener::bind(&registration).unwrap());
                let plugin = tonic::transport::Server::builder()
                    .add_service(DraPluginServer::new(Service(state.clone())))
                    .serve_with_incoming(plugin);
                let register = tonic::transport::Server::builder()
                    .add_service(RegistrationServer::new(Service(state)))
                    .serve_with_incoming(register);
                tokio::select! {
                    _ = stopped => {}
                    ended = plugin => ended.unwrap(),
                    ended = register => ended.unwrap(),
                }
            });
            runtime.shutdown_background();
        });
        self.running = Some((stop, thread));
    }

    /// Goes away; its sockets, too.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.registration);
        let _ = fs::remove_file(&self.state.endpoint);
    }

    /// Whether every call fails from now on.
    pub fn set_failing(&self, fails: bool) {
        *self.state.fails.lock().unwrap() = fails;
    }

    /// Whether calls have no answer from now on; those that wait get theirs with `false`.
    pub fn set_waiting(&self, waits: bool) {
        self.state.waits.send_replace(waits);
    }

    /// Calls so far, such as `prepare default/claim`.
    pub fn calls(&self) -> Vec<String> {
        self.state.calls.lock().unwrap().clone()
    }
}

impl Drop for DraDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Clone)]
struct Service(Arc<State>);

impl Service {
    /// Notes a call, and waits if it is to; its error if it is to fail.
    async fn called(&self, call: &str) -> String {
        self.0.calls.lock().unwrap().push(call.to_owned());
        let mut waits = self.0.waits.subscribe();
        waits.wait_for(|waits| !waits).await.unwrap();
        if *self.0.fails.lock().unwrap() { format!("cannot {call}") } else { String::new() }
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: self.0.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let error = self.called(&format!("prepare {}/{}", claim.namespace, claim.name)).await;
            let device = Device {
                // That of templates, and that of the scheduler's claims for extended resources.
                request_names: vec!["one".into(), "container-0-request-0".into()],
                pool_name: "node1".into(),
                device_name: "card-0".into(),
                cdi_device_ids: vec![self.0.cdi.clone()],
                share_id: None,
            };
            let devices = if error.is_empty() { vec![device] } else { vec![] };
            claims.insert(claim.uid, NodePrepareResourceResponse { devices, error });
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let error = self.called(&format!("unprepare {}/{}", claim.namespace, claim.name)).await;
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
