//! A device plugin with four devices that are none, described by a CDI spec. It notes its calls, and misbehaves when told. It runs
//! in the process of the test, or as a process that can be killed.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use coracle_devices::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use coracle_devices::v1beta1::registration_client::RegistrationClient;
use coracle_devices::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
    ListAndWatchResponse, Mount, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
use futures::{Stream, StreamExt};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::{Request, Response, Status};

pub use crate::driver_ledger::Fault;
use crate::driver_ledger::{DriverProcess, Ledger};

/// The extended resource.
pub const RESOURCE: &str = "gpu.example/card";
/// Ids of the devices.
pub const IDS: [&str; 4] = ["0", "1", "2", "3"];
const SOCKET: &str = "gpu.sock";
/// Value in the ledger: which devices are healthy, as JSON.
const HEALTH: &str = "health";
/// Value in the ledger: that it registers twice, and lists every device twice.
const TWICE: &str = "twice";

struct State {
    /// Of sockets.
    dir: PathBuf,
    /// Mounted into containers.
    shared: PathBuf,
    /// Whether each device is healthy.
    health: watch::Sender<Vec<bool>>,
    ledger: Ledger,
}

/// The plugin; away when dropped.
pub struct FakeGpus {
    state: Arc<State>,
    kubelet_dir: PathBuf,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    process: Option<DriverProcess>,
}

/// Writes the CDI spec of the devices. Its hooks make the file, and write the state of a container that has ended beside it.
pub fn write_cdi_spec(dir: &Path, hook_file: &Path) {
    let after = format!("cat > {}", hook_file.with_extension("after").display());
    write_cdi_hooks(
        dir,
        &serde_json::json!([
            {"hookName": "createRuntime", "path": "/bin/touch", "args": ["touch", hook_file]},
            {"hookName": "poststop", "path": "/bin/sh", "args": ["sh", "-c", after], "env": ["PATH=/usr/bin:/bin"]}]),
    );
}

/// Writes the CDI spec of the devices, with these hooks.
pub fn write_cdi_hooks(dir: &Path, hooks: &serde_json::Value) {
    let device = |id: &&str| {
        serde_json::json!({"name": id, "containerEdits": {
            "env": [format!("CARD_{id}=described")],
            "deviceNodes": [{"path": format!("/dev/card{id}"), "hostPath": "/dev/zero", "permissions": "r"}]}})
    };
    let spec = serde_json::json!({
        "cdiVersion": "0.6.0",
        "kind": RESOURCE,
        "devices": IDS.iter().map(device).collect::<Vec<_>>(),
        "containerEdits": {"hooks": hooks},
    });
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("gpu.json"), spec.to_string()).unwrap();
}

impl FakeGpus {
    /// Prepares a plugin for an agent with this `--kubelet-dir`; it does not run yet.
    pub fn new(kubelet_dir: &Path, shared: &Path) -> Self {
        fs::create_dir_all(shared).unwrap();
        let state = State {
            dir: kubelet_dir.join("device-plugins"),
            shared: shared.to_owned(),
            health: watch::Sender::new(vec![true; IDS.len()]),
            // Beside what containers see.
            ledger: Ledger::new(shared.with_extension("ledger")),
        };
        Self { state: Arc::new(state), kubelet_dir: kubelet_dir.to_owned(), running: None, process: None }
    }

    /// Serves in a process of its own, which can be killed.
    pub fn start_process(&mut self) {
        let dirs = [self.kubelet_dir.as_path(), self.state.shared.as_path()];
        self.process = Some(DriverProcess::start("gpus", dirs, None, &self.state.dir.join(SOCKET)));
    }

    /// Kills the process; its socket stays, and nobody listens.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Waits until the process has crashed.
    pub fn wait_crashed(&mut self) {
        self.process.take().unwrap().wait_crashed();
    }

    /// Registers twice and lists every device twice, from the next start on.
    pub fn say_everything_twice(&self) {
        self.state.ledger.set(TWICE, "");
    }

    /// Serves, and registers with the agent, and again with each agent after it.
    pub fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let state = self.state.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async move {
                tokio::select! {
                    _ = stopped => {}
                    () = serve_for_ever(state) => {}
                }
            });
            runtime.shutdown_background();
        });
        self.running = Some((stop, thread));
    }

    /// Goes away.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
        self.kill();
        let _ = fs::remove_file(self.state.dir.join(SOCKET));
    }

    pub fn set_health(&self, id: usize, healthy: bool) {
        let mut all = self.state.health_now();
        all[id] = healthy;
        self.state.ledger.set(HEALTH, &serde_json::to_string(&all).unwrap());
    }

    /// From now on a call, such as `allocate`, goes wrong.
    pub fn fault(&self, call: &str, fault: Fault) {
        assert!(fault != Fault::Crashes || self.running.is_none(), "this would kill the test");
        self.state.ledger.set_fault(call, fault);
    }

    /// All is well again.
    pub fn mend(&self) {
        self.state.ledger.mend();
    }

    /// Calls so far, such as `allocate 1,2`.
    pub fn calls(&self) -> Vec<String> {
        self.state.ledger.calls()
    }
}

impl State {
    /// Which devices are healthy, as last told.
    fn health_now(&self) -> Vec<bool> {
        let told = self.ledger.get(HEALTH).and_then(|text| serde_json::from_str(&text).ok());
        told.unwrap_or_else(|| vec![true; IDS.len()])
    }
}

/// Which agent serves the registration socket.
fn agent(state: &State) -> Option<(u64, i64)> {
    fs::metadata(state.dir.join("kubelet.sock")).ok().map(|meta| (meta.ino(), meta.ctime_nsec()))
}

async fn serve_for_ever(state: Arc<State>) {
    let mut known = None;
    let mut server: Option<tokio::task::JoinHandle<()>> = None;
    loop {
        let health = state.health_now();
        state.health.send_if_modified(|all| std::mem::replace(all, health.clone()) != health);
        let now = agent(&state);
        if now.is_some() && now != known {
            if let Some(old) = server.take() {
                old.abort();
                let _ = old.await;
            }
            let socket = state.dir.join(SOCKET);
            let _ = fs::remove_file(&socket);
            let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
            let service = DevicePluginServer::new(Service(state.clone()));
            server = Some(tokio::spawn(async move {
                let server = tonic::transport::Server::builder().add_service(service);
                let _ = server.serve_with_incoming(listener).await;
            }));
            // The agent may not listen yet, or be killed in between.
            let mut registered = register(&state).await;
            if state.ledger.get(TWICE).is_some() {
                registered = registered.and(register(&state).await);
            }
            if registered.is_ok() {
                known = now;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn register(state: &State) -> Result<(), Status> {
    let channel = coracle_csi::channel(state.dir.join("kubelet.sock"));
    let request = RegisterRequest {
        version: "v1beta1".into(),
        endpoint: SOCKET.into(),
        resource_name: RESOURCE.into(),
        options: Some(DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }),
    };
    RegistrationClient::new(channel).register(request).await.map(drop)
}

struct Service(Arc<State>);

impl Service {
    /// Notes a call, and does what it was told to do instead.
    async fn called(&self, name: &str, about: &str) -> Result<(), Status> {
        self.0.ledger.note(&format!("{name} {about}"));
        let fault = self.0.ledger.fault(name);
        match fault {
            Some(Fault::Fails) => return Err(Status::internal(format!("card {about} is on fire"))),
            Some(Fault::Refuses) => return Err(Status::out_of_range(format!("no card {about}"))),
            Some(Fault::InUse) => return Err(Status::failed_precondition(format!("card {about} is in use"))),
            Some(Fault::Hangs) => return std::future::pending().await,
            Some(Fault::LosesItsAnswer | Fault::Slow(_) | Fault::Crashes) | None => {}
        }
        self.0.ledger.before_answer(name, fault).await;
        Ok(())
    }
}

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let device = |(id, healthy): (&&str, &bool)| Device {
            id: (*id).to_owned(),
            health: if *healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
            topology: None,
        };
        let lists = WatchStream::new(self.0.health.subscribe());
        let times = if self.0.ledger.get(TWICE).is_some() { 2 } else { 1 };
        let lists = lists.flat_map(move |health| {
            let mut devices: Vec<Device> = IDS.iter().zip(&health).map(device).collect();
            devices.extend_from_within(..devices.len() * (times - 1));
            futures::stream::iter(
                vec![ListAndWatchResponse { devices }; times].into_iter().map(Ok::<_, Status>),
            )
        });
        Ok(Response::new(lists.boxed()))
    }

    /// Prefers the last ones.
    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut ids = request.into_inner().container_requests.remove(0).available_device_i_ds;
        ids.sort();
        ids.reverse();
        let one = ContainerPreferredAllocationResponse { device_i_ds: ids };
        Ok(Response::new(PreferredAllocationResponse { container_responses: vec![one] }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        self.called("allocate", &ids.join(",")).await?;
        let cdi = |id: &String| CdiDevice { name: format!("{RESOURCE}={id}") };
        let one = ContainerAllocateResponse {
            envs: [("CARDS".to_owned(), ids.join(","))].into(),
            mounts: vec![Mount {
                container_path: "/opt/cards".into(),
                host_path: self.0.shared.display().to_string(),
                read_only: false,
            }],
            devices: vec![DeviceSpec {
                container_path: "/dev/cardctl".into(),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            }],
            annotations: HashMap::from([("gpu.example/cards".to_owned(), ids.join(","))]),
            cdi_devices: ids.iter().map(cdi).collect(),
        };
        Ok(Response::new(AllocateResponse { container_responses: vec![one] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        self.called("prestart", &ids.join(",")).await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

impl Drop for FakeGpus {
    fn drop(&mut self) {
        self.stop();
    }
}
