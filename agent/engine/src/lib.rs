//! The container engine: images, sandboxes, containers and their network; also served as CRI.
//!
//! Every side effect is recorded (`record`) before it is made, or can be found again; `recover` continues or cleans up what a
//! killed engine left. Operations on one sandbox or container are serialized, others run in parallel.
//!
//! May depend on `coracle-keeper`, `coracle-host-dir`, `coracle-cni`, `coracle-proto` and `coracle-cli`. It knows no Pod
//! objects and no API server: it speaks CRI ([`runtime::Runtime`]).
// Modules that work on files which a pod can change deny `disallowed_methods`.
#![allow(clippy::disallowed_methods)]

// Options of the engine.
pub mod options;
// Lock file: one engine per run directory.
mod run_lock;
// Directories and files of the engine.
pub mod paths;
// Features of the host, and its cgroup hierarchy.
pub mod host;
// The default AppArmor profile.
mod apparmor;
// SELinux labels of files.
mod relabel;
// Errors as CRI status codes.
mod error;
// Records of sandboxes and containers on disk.
pub mod record;
// The connection to the keeper.
pub mod keeper;
// Resource limits as cgroup files.
pub mod limits;
// cgroups v2.
pub mod cgroup;
// Hides the latency of moving a process into a cgroup.
mod cgroup_migration;
// Images: pull, verify, unpack, garbage collection.
pub mod image;
// The runtime side of CNI.
pub mod cni;
// Sandboxes: pause, namespaces, network.
mod sandbox;
// Files and pinned namespaces of a sandbox.
mod sandbox_files;
// The configuration for the OCI runtime.
pub mod spec;
// Resolves user and group names of an image.
pub mod user;
// ID-mapped mounts for user namespaces.
mod idmap;
// Root filesystems and volumes.
mod rootfs;
// Containers: create, start, stop, remove.
mod container;
// Exits of containers.
mod exit;
// Requests of commands that enter a container without the OCI runtime.
mod enter_request;
// Exec.
mod exec;
// Attach and port-forward.
mod attach;
// CRI status messages and events.
mod status;
// Usage from cgroup files and `/proc`.
mod stats;
// Metric families of container usage.
pub mod metric_families;
// Usage as CRI metrics.
mod metrics;
// Disk usage of the writable layers of containers.
mod layer_usage;
// Checkpoints: the state of a container as an archive.
mod checkpoint;
// Recovery after a restart.
mod recover;
// Restores host ports whose rules were removed.
mod host_ports;
// The streaming server for CRI clients.
pub mod streaming;
// CRI on a unix socket.
pub mod serve;
// Implements `Runtime` for the engine.
mod runtime_impl;
// `trait Runtime`: the interface between pods and any container runtime.
pub mod runtime;
// WebSocket channels and SPDY: many streams over one connection.
pub mod streams;
// Watches our nftables tables for changes by other programs.
pub mod nft_monitor;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use coracle_cli::supervise::Supervisor;
use coracle_proto::cri;
use parking_lot::Mutex;
use tokio::sync::{broadcast, oneshot, watch};

use self::cgroup::Hierarchy;
use self::cni::Network;
use self::error::internal;
use self::image::{ImageStore, RegistryConfig};
use self::keeper::{Keeper, KeeperEvent, TaskFds};
pub use self::options::Options;
use self::paths::Paths;
use self::record::{ContainerPhase, ContainerRecord, Records, SandboxPhase, SandboxRecord};
use self::run_lock::RunLock;
use crate::runtime::{Result, RuntimeError};
use coracle_keeper::exits::Exit;

/// Capacity of the event channel. A subscriber that falls behind by more misses the oldest events.
const EVENTS: usize = 4096;

/// A sandbox in memory.
pub(crate) struct Sandbox {
    id: String,
    record: Mutex<SandboxRecord>,
    held: Mutex<TaskFds>,
    /// Serializes operations on this sandbox.
    verb: tokio::sync::Mutex<()>,
}

/// A container in memory.
pub(crate) struct Container {
    id: String,
    /// Id of its sandbox.
    sandbox: String,
    /// Do not look up other objects while holding this lock: lookups lock records.
    record: Mutex<ContainerRecord>,
    held: Mutex<TaskFds>,
    verb: tokio::sync::Mutex<()>,
    /// Serializes `release_processes`, which both exit and removal call.
    releasing: tokio::sync::Mutex<()>,
    /// True once it has ended.
    exited: watch::Sender<bool>,
    /// Its precreated process, until the container is started.
    waiting: Mutex<Option<container::precreate::PrecreatedProcess>>,
    /// Cached request for commands that enter it; none if only the OCI runtime can run them.
    enter_request: std::sync::OnceLock<Option<Arc<coracle_keeper::enter::Request>>>,
}

impl Container {
    fn new(record: ContainerRecord) -> Arc<Self> {
        let exited = matches!(record.phase, ContainerPhase::Exited);
        Arc::new(Self {
            id: record.id.clone(),
            sandbox: record.sandbox.clone(),
            record: Mutex::new(record),
            held: Mutex::default(),
            verb: tokio::sync::Mutex::default(),
            releasing: tokio::sync::Mutex::default(),
            exited: watch::Sender::new(exited),
            waiting: Mutex::default(),
            enter_request: std::sync::OnceLock::new(),
        })
    }

    fn phase(&self) -> ContainerPhase {
        self.record.lock().phase
    }

    fn is_live(&self) -> bool {
        matches!(self.phase(), ContainerPhase::Starting | ContainerPhase::Running)
    }
}

impl Sandbox {
    fn new(record: SandboxRecord) -> Arc<Self> {
        Arc::new(Self {
            id: record.id.clone(),
            record: Mutex::new(record),
            held: Mutex::default(),
            verb: tokio::sync::Mutex::default(),
        })
    }

    fn phase(&self) -> SandboxPhase {
        self.record.lock().phase
    }
}

#[derive(Default)]
struct Objects {
    sandboxes: HashMap<String, Arc<Sandbox>>,
    containers: HashMap<String, Arc<Container>>,
}

struct Inner {
    options: Options,
    paths: Paths,
    host: spec::Host,
    hierarchy: Hierarchy,
    hosts: RegistryConfig,
    images: ImageStore,
    network: Network,
    keeper: Keeper,
    sandbox_records: Records,
    container_records: Records,
    objects: Mutex<Objects>,
    /// Waiters for exits of execs, with the generation of the keeper connection.
    execs: Mutex<HashMap<String, (u64, oneshot::Sender<Exit>)>>,
    /// Events for subscribers; the channel allocates its whole capacity.
    events: broadcast::Sender<Arc<cri::ContainerEventResponse>>,
    cpu_samples: stats::Samples,
    /// Held during recovery.
    recovery: tokio::sync::Mutex<()>,
    layers: layer_usage::LayerUsage,
    /// Whether the OCI runtime supports precreation; unset until it was detected.
    waits_at_fifo: std::sync::OnceLock<bool>,
    /// A migration by `prepare_migration` is in progress.
    moving: AtomicBool,
    _run_lock: RunLock,
}

/// The engine. Clones share their state.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// Opens the engine, starts or connects to its keeper, and recovers the state of an earlier engine.
    pub async fn open(options: Options) -> Result<Self> {
        Self::supervised(options, &Supervisor::default()).await
    }

    /// As [`Engine::open`], with background tasks under `supervisor`.
    pub async fn supervised(options: Options, supervisor: &Supervisor) -> Result<Self> {
        let paths = Paths::create(&options.root, &options.run).map_err(internal("engine directories"))?;
        let run_lock = RunLock::acquire(paths.run()).await?;
        let hierarchy = Hierarchy::open(&options.cgroup_root)?;
        let missing = hierarchy.missing();
        if !missing.is_empty() {
            tracing::warn!(?missing, "cgroup controllers are missing: their limits are not enforced");
        }
        let images = ImageStore::open(&paths.images())?;
        let hosts = match &options.registries {
            Some(path) => RegistryConfig::load(path)?,
            None => RegistryConfig::default(),
        };
        let (keeper, notices) = Keeper::connect(&options.keeper, paths.run(), supervisor).await?;
        let engine = Self {
            inner: Arc::new(Inner {
                host: host::detect(hierarchy.controllers().clone()),
                network: Network::new(options.cni.clone()),
                sandbox_records: Records::new(paths.sandbox_records()),
                container_records: Records::new(paths.container_records()),
                objects: Mutex::default(),
                execs: Mutex::default(),
                events: broadcast::Sender::new(EVENTS),
                cpu_samples: stats::Samples::default(),
                recovery: tokio::sync::Mutex::default(),
                _run_lock: run_lock,
                layers: layer_usage::LayerUsage::default(),
                waits_at_fifo: std::sync::OnceLock::new(),
                moving: AtomicBool::new(false),
                options,
                paths,
                hierarchy,
                hosts,
                images,
                keeper,
            }),
        };
        engine.load_records()?;
        let recovering = engine.inner.recovery.lock().await;
        // Before recovery: cleaning up waits for exit events.
        let (listening, notices) = (engine.clone(), Arc::new(tokio::sync::Mutex::new(notices)));
        let task = supervisor.clone().finish("engine notices", move || {
            let (engine, notices) = (listening.clone(), notices.clone());
            async move { engine.listen(&mut *notices.lock().await).await }
        });
        tokio::spawn(task);
        engine.recover().await?;
        drop(recovering);
        let keeping = engine.clone();
        tokio::spawn(supervisor.clone().finish("engine ports", move || keeping.clone().restore_host_ports()));
        let asking = engine.clone();
        tokio::spawn(async move {
            let answer = container::precreate::waits_at_fifo(&asking.inner.options.runtime).await;
            let _ = asking.inner.waits_at_fifo.set(answer);
        });
        Ok(engine)
    }

    /// The image store, for commands that have no CRI verb.
    pub fn images(&self) -> &ImageStore {
        &self.inner.images
    }

    /// Required cgroup controllers that the host does not have.
    pub fn missing_controllers(&self) -> Vec<&'static str> {
        self.inner.hierarchy.missing()
    }

    async fn listen(&self, notices: &mut tokio::sync::mpsc::UnboundedReceiver<KeeperEvent>) {
        while let Some(notice) = notices.recv().await {
            match notice {
                KeeperEvent::Exited(exit) => self.exited(exit),
                KeeperEvent::StdinClosed(id) => {
                    if let Ok(container) = self.container(&id) {
                        container.held.lock().stdin = None;
                    }
                }
                KeeperEvent::Replaced => {
                    // In a task of its own, because exits must be processed meanwhile.
                    let engine = self.clone();
                    tokio::spawn(async move { engine.hand_tasks_to_keeper().await });
                }
            }
        }
    }

    /// Runs blocking work on the blocking thread pool.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.clone();
        tokio::task::spawn_blocking(move || work(&engine)).await.map_err(internal("engine"))?
    }

    /// Finds a sandbox by its id or a unique prefix of it.
    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        let objects = self.inner.objects.lock();
        by_prefix(&objects.sandboxes, id).ok_or_else(|| {
            RuntimeError::NotFound(format!("an error occurred when try to find sandbox: {id:?}: not found"))
        })
    }

    /// Finds a container by its id or a unique prefix of it.
    fn container(&self, id: &str) -> Result<Arc<Container>> {
        let objects = self.inner.objects.lock();
        by_prefix(&objects.containers, id).ok_or_else(|| {
            RuntimeError::NotFound(format!("an error occurred when try to find container {id:?}: not found"))
        })
    }

    fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let objects = self.inner.objects.lock();
        objects.containers.values().filter(|c| c.sandbox == sandbox).cloned().collect()
    }

    /// Changes a sandbox's record and writes it to disk.
    fn change_sandbox<T>(
        &self,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut SandboxRecord) -> T,
    ) -> Result<T> {
        let mut record = sandbox.record.lock();
        let result = change(&mut record);
        self.inner.sandbox_records.put(&sandbox.id, &*record).map_err(internal("sandbox record"))?;
        Ok(result)
    }

    /// Changes a container's record and writes it to disk.
    fn change_container<T>(
        &self,
        container: &Container,
        change: impl FnOnce(&mut ContainerRecord) -> T,
    ) -> Result<T> {
        let mut record = container.record.lock();
        let result = change(&mut record);
        self.inner.container_records.put(&container.id, &*record).map_err(internal("container record"))?;
        Ok(result)
    }

    /// Ids of all sandboxes and containers that have not been removed.
    fn live_ids(&self) -> BTreeSet<String> {
        let objects = self.inner.objects.lock();
        objects.sandboxes.keys().chain(objects.containers.keys()).cloned().collect()
    }
}

fn by_prefix<T>(map: &HashMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = map.get(id) {
        return Some(found.clone());
    }
    if id.is_empty() {
        return None;
    }
    let mut fitting = map.iter().filter(|(full, _)| full.starts_with(id)).map(|(_, object)| object);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

/// A random id of 64 hex digits, as in other runtimes.
fn new_id() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().fold(String::with_capacity(64), |mut id, byte| {
        use std::fmt::Write;
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
