//! A driver of dynamic resource allocation. It notes its calls, and misbehaves when told. It runs in the process of the test, or as
//! a process that can be killed.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

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
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

pub use crate::driver_ledger::Fault;
use crate::driver_ledger::{DriverProcess, Ledger};

/// Name of the driver.
pub const DRIVER: &str = "dra.example";
/// How often a call that hangs looks whether it may go on.
const LOOK: Duration = Duration::from_millis(20);
/// Value in the ledger: that it names every device twice, and claims that nobody asked for.
const TWICE: &str = "twice";

struct State {
    endpoint: PathBuf,
    ledger: Ledger,
    data: PathBuf,
    /// Qualified name of the CDI device that it gives.
    cdi: String,
}

/// The driver; away when dropped.
pub struct DraDriver {
    state: Arc<State>,
    kubelet_dir: PathBuf,
    registration: PathBuf,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    process: Option<DriverProcess>,
}

impl DraDriver {
    /// Prepares a driver for an agent with this `--kubelet-dir`; it does not run yet. What it keeps is in `data`.
    pub fn new(kubelet_dir: &Path, data: &Path, cdi: &str) -> Self {
        let plugin = kubelet_dir.join("plugins").join(DRIVER);
        fs::create_dir_all(&plugin).unwrap();
        let state = State {
            endpoint: plugin.join("dra.sock"),
            ledger: Ledger::new(data.to_owned()),
            data: data.to_owned(),
            cdi: cdi.to_owned(),
        };
        let registration = kubelet_dir.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
        let kubelet_dir = kubelet_dir.to_owned();
        Self { state: Arc::new(state), kubelet_dir, registration, running: None, process: None }
    }

    /// Serves in a process of its own, which can be killed.
    pub fn start_process(&mut self) {
        let dirs = [self.kubelet_dir.as_path(), self.state.data.as_path()];
        self.process = Some(DriverProcess::start("dra", dirs, Some(&self.state.cdi), &self.registration));
    }

    /// Kills the process; its sockets stay, and nobody listens.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Waits until the process has crashed.
    pub fn wait_crashed(&mut self) {
        self.process.take().unwrap().wait_crashed();
    }

    /// From now on it names every device twice, and claims that nobody asked for.
    pub fn say_everything_twice(&self) {
        self.state.ledger.set(TWICE, "");
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
        self.kill();
        let _ = fs::remove_file(&self.registration);
        let _ = fs::remove_file(&self.state.endpoint);
    }

    /// From now on a call, `prepare` or `unprepare`, goes wrong. One that hangs goes on when it is mended.
    pub fn fault(&self, call: &str, fault: Fault) {
        assert!(fault != Fault::Crashes || self.running.is_none(), "this would kill the test");
        self.state.ledger.set_fault(call, fault);
    }

    /// All is well again.
    pub fn mend(&self) {
        self.state.ledger.mend();
    }

    /// Calls so far, such as `prepare default/claim`.
    pub fn calls(&self) -> Vec<String> {
        self.state.ledger.calls()
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
    /// Notes a call, and does what it was told to do instead; its error if it is to fail.
    async fn called(&self, name: &str, about: &str) -> String {
        self.0.ledger.note(&format!("{name} {about}"));
        while self.0.ledger.fault(name) == Some(Fault::Hangs) {
            tokio::time::sleep(LOOK).await;
        }
        let fault = self.0.ledger.fault(name);
        self.0.ledger.before_answer(name, fault).await;
        match fault {
            Some(Fault::Fails | Fault::Refuses | Fault::InUse) => format!("cannot {name} {about}"),
            _ => String::new(),
        }
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
            let error = self.called("prepare", &format!("{}/{}", claim.namespace, claim.name)).await;
            let device = Device {
                // That of templates, and that of the scheduler's claims for extended resources.
                request_names: vec!["one".into(), "container-0-request-0".into()],
                pool_name: "node1".into(),
                device_name: "card-0".into(),
                cdi_device_ids: vec![self.0.cdi.clone()],
                share_id: None,
            };
            let twice = self.0.ledger.get(TWICE).is_some();
            let times = if twice { 2 } else { 1 };
            let devices = if error.is_empty() { vec![device; times] } else { vec![] };
            let answer = NodePrepareResourceResponse { devices, error };
            if twice {
                claims.insert(format!("{}-again", claim.uid), answer.clone());
            }
            claims.insert(claim.uid, answer);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let error = self.called("unprepare", &format!("{}/{}", claim.namespace, claim.name)).await;
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
