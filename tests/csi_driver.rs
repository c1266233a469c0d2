//! A storage driver whose volumes are directories, loop devices or disks of this machine. It notes its calls, and misbehaves when
//! told. It runs in the process of the test, or as a process that can be killed.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coracle_csi::pluginregistration::registration_server::{Registration, RegistrationServer};
use coracle_csi::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use coracle_csi::v1;
use coracle_csi::v1::node_server::{Node, NodeServer};
use coracle_csi::v1::node_service_capability::{Rpc, Type, rpc};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

pub use crate::driver_ledger::Fault;
use crate::driver_ledger::{DriverProcess, Ledger};

/// What it keeps besides its volumes, in their directory.
const LEDGER: &str = ".driver";
/// The file in the directory of a volume that names its disk.
const DISK: &str = ".disk";
/// Values in the ledger: how many volumes a node can have, what is wrong with all volumes, and whether it registers twice.
const LIMIT: &str = "limit";
const TROUBLE: &str = "trouble";
const TWICE: &str = "twice";

struct State {
    name: String,
    /// Directories of volumes, by id.
    data: PathBuf,
    endpoint: PathBuf,
    ledger: Ledger,
    /// What agents said of registrations.
    registrations: Ledger,
    /// Loop devices of block volumes, by id.
    loops: Mutex<BTreeMap<String, PathBuf>>,
}

impl Drop for State {
    fn drop(&mut self) {
        for device in self.loops.lock().unwrap().values() {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

/// The driver; away when dropped.
pub struct CsiDriver {
    state: Arc<State>,
    kubelet_dir: PathBuf,
    registration: PathBuf,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    process: Option<DriverProcess>,
}

impl CsiDriver {
    /// Prepares a driver for an agent with this `--kubelet-dir`; it does not run yet.
    pub fn new(name: &str, kubelet_dir: &Path, data: &Path) -> Self {
        let plugin = kubelet_dir.join("plugins").join(name);
        fs::create_dir_all(&plugin).unwrap();
        fs::create_dir_all(data).unwrap();
        let state = State {
            name: name.to_owned(),
            data: data.to_owned(),
            endpoint: plugin.join("csi.sock"),
            ledger: Ledger::new(data.join(LEDGER)),
            registrations: Ledger::new(data.join(LEDGER).join("registrations")),
            loops: Mutex::default(),
        };
        let registration = kubelet_dir.join("plugins_registry").join(format!("{name}-reg.sock"));
        let kubelet_dir = kubelet_dir.to_owned();
        Self { state: Arc::new(state), kubelet_dir, registration, running: None, process: None }
    }

    /// Serves in a process of its own, which can be killed.
    pub fn start_process(&mut self) {
        let dirs = [self.kubelet_dir.as_path(), self.state.data.as_path()];
        self.process = Some(DriverProcess::start("csi", dirs, Some(&self.state.name), &self.registration));
    }

    /// Kills the process; its sockets stay, and nobody listens.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Waits until the process has crashed.
    pub fn wait_crashed(&mut self) {
        self.process.take().unwrap().wait_crashed();
    }

    /// Registers with two sockets, from the next start on.
    pub fn register_twice(&self) {
        self.state.ledger.set(TWICE, "");
    }

    /// Serves, and registers with the agent.
    pub fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let (state, registration) = (self.state.clone(), self.registration.clone());
        fs::create_dir_all(registration.parent().unwrap()).unwrap();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async move {
                let _ = fs::remove_file(&state.endpoint);
                let _ = fs::remove_file(&registration);
                let node = UnixListenerStream::new(UnixListener::bind(&state.endpoint).unwrap());
                let register = UnixListenerStream::new(UnixListener::bind(&registration).unwrap());
                if state.ledger.get(TWICE).is_some() {
                    let second = second(&registration);
                    let _ = fs::remove_file(&second);
                    let second = UnixListenerStream::new(UnixListener::bind(&second).unwrap());
                    let server = tonic::transport::Server::builder()
                        .add_service(RegistrationServer::new(Service(state.clone())));
                    tokio::spawn(server.serve_with_incoming(second));
                }
                ready.send(()).unwrap();
                let node = tonic::transport::Server::builder()
                    .add_service(NodeServer::new(Service(state.clone())))
                    .serve_with_incoming(node);
                let register = tonic::transport::Server::builder()
                    .add_service(RegistrationServer::new(Service(state)))
                    .serve_with_incoming(register);
                tokio::select! {
                    _ = stopped => {}
                    ended = node => ended.unwrap(),
                    ended = register => ended.unwrap(),
                }
            });
            runtime.shutdown_background();
        });
        is_ready.recv().unwrap();
        self.running = Some((stop, thread));
    }

    /// Goes away; its sockets, too. What it mounted stays.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
        self.kill();
        for socket in [&self.registration, &second(&self.registration), &self.state.endpoint] {
            let _ = fs::remove_file(socket);
        }
    }

    /// How many volumes a node can have, from the next registration on.
    pub fn set_limit(&self, limit: i64) {
        self.state.ledger.set(LIMIT, &limit.to_string());
    }

    /// From now on a call, such as `publish`, goes wrong.
    pub fn fault(&self, call: &str, fault: Fault) {
        assert!(fault != Fault::Crashes || self.running.is_none(), "this would kill the test");
        self.state.ledger.set_fault(call, fault);
    }

    /// All is well again.
    pub fn mend(&self) {
        self.state.ledger.mend();
    }

    /// From now on something is wrong with all volumes.
    pub fn trouble(&self, message: &str) {
        self.state.ledger.set(TROUBLE, message);
    }

    /// Calls so far, such as `publish vol-1`.
    pub fn calls(&self) -> Vec<String> {
        self.state.ledger.calls()
    }

    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|one| one.starts_with(call)).count()
    }

    /// What the agent has said of the registration; empty texts are good.
    pub fn registrations(&self) -> Vec<String> {
        self.state.registrations.calls()
    }

    /// The directory of a volume.
    pub fn volume(&self, id: &str) -> PathBuf {
        self.state.data.join(id)
    }
}

impl Drop for CsiDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Clone)]
struct Service(Arc<State>);

impl Service {
    /// Notes a call, does its work, and goes wrong as told.
    async fn call<T>(
        &self,
        call: &str,
        volume: &str,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        self.0.ledger.note(&format!("{call} {volume}"));
        let fault = self.0.ledger.fault(call);
        match fault {
            Some(Fault::Fails) => return Err(Status::internal(format!("the disk of {volume} is on fire"))),
            Some(Fault::Refuses) => {
                return Err(Status::out_of_range(format!("the disk of {volume} has no room")));
            }
            Some(Fault::InUse) => return Err(Status::failed_precondition(format!("{volume} is in use"))),
            Some(Fault::Hangs) => return std::future::pending().await,
            Some(Fault::LosesItsAnswer | Fault::Slow(_) | Fault::Crashes) | None => {}
        }
        let answer = work()?;
        self.0.ledger.before_answer(call, fault).await;
        Ok(Response::new(answer))
    }

    /// The device of a block volume: a loop device over a file.
    fn device(&self, id: &str) -> Result<PathBuf, Status> {
        let mut loops = self.0.loops.lock().unwrap();
        if let Some(device) = loops.get(id) {
            return Ok(device.clone());
        }
        let image = self.0.data.join(format!("{id}.img"));
        fs::OpenOptions::new().create(true).append(true).open(&image)?.set_len(8 << 20)?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output()?;
        if !made.status.success() {
            return Err(Status::internal(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let device = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        loops.insert(id.to_owned(), device.clone());
        Ok(device)
    }

    fn detach(&self, id: &str) -> Result<(), Status> {
        if let Some(device) = self.0.loops.lock().unwrap().remove(id) {
            Command::new("losetup").arg("-d").arg(&device).status()?;
        }
        Ok(())
    }

    fn volume(&self, id: &str) -> Result<PathBuf, Status> {
        let dir = self.0.data.join(id);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// The socket of a second registration.
fn second(registration: &Path) -> PathBuf {
    registration.with_extension("2.sock")
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    let kind = capability.and_then(|capability| capability.access_type.as_ref());
    matches!(kind, Some(v1::volume_capability::AccessType::Block(_)))
}

fn bind(from: &Path, to: &Path) -> Result<(), Status> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
    } else {
        fs::OpenOptions::new().create(true).append(true).open(to)?;
    }
    if is_mounted(to) {
        return Ok(());
    }
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|error| Status::internal(format!("mount {}: {error}", to.display())))
}

/// Mounts a disk. One without a file system gets one of this size.
fn mount_disk(disk: &str, size: &str, to: &Path) -> Result<(), Status> {
    fs::create_dir_all(to)?;
    if is_mounted(to) {
        return Ok(());
    }
    if tool("blkid", &["-p", disk]).is_err() {
        // It asks before it overwrites anything, and has nobody to ask.
        tool("mkfs.ext4", &["-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", disk, size])?;
    }
    tool("mount", &["-t", "ext4", disk, &to.to_string_lossy()])
}

fn tool(program: &str, args: &[&str]) -> Result<(), Status> {
    let output = Command::new(program).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(Status::internal(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn unbind(path: &Path) -> Result<(), Status> {
    if is_mounted(path) {
        umount2(path, MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|error| Status::internal(format!("unmount {}: {error}", path.display())))?;
    }
    let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: self.0.name.clone(),
            endpoint: self.0.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.0.registrations.note(&status.into_inner().error);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let work = || {
            if is_block(request.volume_capability.as_ref()) {
                self.device(&request.volume_id)?;
                return Ok(v1::NodeStageVolumeResponse {});
            }
            let kind = request.volume_capability.as_ref().and_then(|one| one.access_type.clone());
            if let Some(v1::volume_capability::AccessType::Mount(mount)) = kind
                && !matches!(mount.fs_type.as_str(), "" | "ext4")
            {
                return Err(Status::invalid_argument(format!("unknown file system {:?}", mount.fs_type)));
            }
            let (dir, target) = (self.volume(&request.volume_id)?, Path::new(&request.staging_target_path));
            if let Some(disk) = request.volume_context.get("device") {
                let size = request.volume_context.get("size").map_or("", String::as_str);
                mount_disk(disk, size, target)?;
                fs::write(dir.join(DISK), disk)?;
            } else {
                bind(&dir, target)?;
            }
            Ok(v1::NodeStageVolumeResponse {})
        };
        self.call("stage", &request.volume_id, work).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let work = || {
            self.detach(&request.volume_id)?;
            unbind(Path::new(&request.staging_target_path))?;
            Ok(v1::NodeUnstageVolumeResponse {})
        };
        self.call("unstage", &request.volume_id, work).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let work = || {
            let staged = Path::new(&request.staging_target_path);
            if is_block(request.volume_capability.as_ref()) {
                bind(&self.device(&request.volume_id)?, Path::new(&request.target_path))?;
                return Ok(v1::NodePublishVolumeResponse {});
            }
            let from = match request.staging_target_path.as_str() {
                "" => self.volume(&request.volume_id)?,
                _ if is_mounted(staged) => staged.to_owned(),
                _ => return Err(Status::failed_precondition("the volume is not staged")),
            };
            bind(&from, Path::new(&request.target_path))?;
            let context: BTreeMap<_, _> = request.volume_context.iter().collect();
            let text = format!("{context:?} {:?} {:?}", request.publish_context, request.secrets);
            fs::write(self.volume(&request.volume_id)?.join(".published-with"), text)?;
            Ok(v1::NodePublishVolumeResponse {})
        };
        self.call("publish", &request.volume_id, work).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let work = || {
            unbind(Path::new(&request.target_path))?;
            Ok(v1::NodeUnpublishVolumeResponse {})
        };
        self.call("unpublish", &request.volume_id, work).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let work = || {
            if !is_mounted(Path::new(&request.volume_path)) {
                return Err(Status::not_found(request.volume_path.clone()));
            }
            let usage = |unit: v1::volume_usage::Unit, total: i64, used: i64| v1::VolumeUsage {
                unit: unit as i32,
                total,
                used,
                available: total - used,
            };
            let trouble = self.0.ledger.get(TROUBLE);
            Ok(v1::NodeGetVolumeStatsResponse {
                usage: vec![
                    usage(v1::volume_usage::Unit::Bytes, 1000, 400),
                    usage(v1::volume_usage::Unit::Inodes, 50, 3),
                ],
                volume_condition: Some(v1::VolumeCondition {
                    abnormal: trouble.is_some(),
                    message: trouble.unwrap_or_default(),
                }),
            })
        };
        self.call("stats", &request.volume_id, work).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        let work = || {
            if !is_mounted(Path::new(&request.volume_path)) {
                return Err(Status::not_found(request.volume_path.clone()));
            }
            let dir = self.volume(&request.volume_id)?;
            match fs::read_to_string(dir.join(DISK)) {
                Ok(disk) => tool("resize2fs", &[disk.as_str(), &format!("{}K", bytes / 1024)])?,
                Err(_) => fs::write(dir.join(".size"), bytes.to_string())?,
            }
            Ok(v1::NodeExpandVolumeResponse { capacity_bytes: bytes })
        };
        self.call("expand", &request.volume_id, work).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        let all = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::ExpandVolume,
            rpc::Type::VolumeCondition,
        ];
        let one = |one: rpc::Type| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: one as i32 })),
        };
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities: all.map(one).into() }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        let work = || {
            let limit = self.0.ledger.get(LIMIT);
            let zone = [("disk.example/zone".to_owned(), "here".to_owned())].into();
            Ok(v1::NodeGetInfoResponse {
                node_id: "this-machine".into(),
                max_volumes_per_node: limit.and_then(|limit| limit.parse().ok()).unwrap_or(7),
                accessible_topology: Some(v1::Topology { segments: zone }),
            })
        };
        self.call("info", "of the node", work).await
    }
}
