//! The container engine: images, sandboxes, containers and their network; also served as CRI.
//!
//! Every side effect is written down before it is made, in `record`, or can be found again; `recover` takes up whatever
//! a killed engine left. Operations on one sandbox or container run one after the other, others in parallel.
//!
//! May depend on `coracle-keeper`, `coracle-host-dir`, `coracle-cni`, `coracle-proto` and `coracle-cli`. It knows no Pod
//! objects and no API server: it speaks CRI ([`runtime::Runtime`]).
// Where a pod can change files meanwhile, modules deny them again.
#![allow(clippy::disallowed_methods)]

// Options of the engine.
pub mod options;
// The lock: one engine at a time.
mod tenure;
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
// Faster moves of processes between cgroups.
mod moves;
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
// What a command needs to enter a container.
mod entry;
// Exec.
mod exec;
// Attach and port-forward.
mod attach;
// Status in CRI's terms.
mod status;
// Usage from cgroup files and `/proc`.
mod stats;
// Metric families of container usage.
pub mod families;
// Usage as CRI metrics.
mod metrics;
// Disk usage of the writable layers of containers.
mod layers;
// Checkpoints: the state of a container as an archive.
mod checkpoint;
// Recovery after a restart.
mod recover;
// Restores host ports whose rules were removed.
mod ports;
// The streaming server for CRI clients.
pub mod streaming;
// CRI on a unix socket.
pub mod serve;
// Implements `Runtime` for the engine.
mod verbs;
// `trait Runtime`: the interface between pods and any container runtime.
pub mod runtime;
// WebSocket channels and SPDY: many streams over one connection.
pub mod streams;
// Notices changes of our nftables tables by other programs.
pub mod others;

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
use self::image::{Hosts, ImageStore};
use self::keeper::{Held, Keeper, Notice};
pub use self::options::Options;
use self::paths::Paths;
use self::record::{ContainerPhase, ContainerRecord, Records, SandboxPhase, SandboxRecord};
use self::tenure::Tenure;
use crate::runtime::{Result, RuntimeError};
use coracle_keeper::exits::Exit;

/// A subscriber that falls behind by more than this hears nothing of the oldest.
const EVENTS: usize = 4096;

/// A sandbox in memory.
pub(crate) struct Sandbox {
    id: String,
    record: Mutex<SandboxRecord>,
    held: Mutex<Held>,
    /// Verbs wait for each other.
    verb: tokio::sync::Mutex<()>,
}

/// A container in memory.
pub(crate) struct Container {
    id: String,
    /// The sandbox it is in, for ever.
    sandbox: String,
    /// Nobody who holds it looks for other objects: those who look for one may look into its record.
    record: Mutex<ContainerRecord>,
    held: Mutex<Held>,
    verb: tokio::sync::Mutex<()>,
    /// Its exit and its removal both let go of its processes.
    releasing: tokio::sync::Mutex<()>,
    /// True once it has ended.
    exited: watch::Sender<bool>,
    /// Its process, while that waits to be started.
    waiting: Mutex<Option<container::first::Waiting>>,
    /// How commands enter it; found out by the first.
    entry: std::sync::OnceLock<Option<Arc<coracle_keeper::enter::Request>>>,
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
            entry: std::sync::OnceLock::new(),
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
    hosts: Hosts,
    images: ImageStore,
    network: Network,
    keeper: Keeper,
    sandbox_records: Records,
    container_records: Records,
    objects: Mutex<Objects>,
    /// Who waits for which exec, and on which connection to the keeper it was asked for.
    execs: Mutex<HashMap<String, (u64, oneshot::Sender<Exit>)>>,
    /// Shared: the channel has room for all of them from the beginning.
    events: broadcast::Sender<Arc<cri::ContainerEventResponse>>,
    cpu_samples: stats::Samples,
    /// Held while what an earlier engine left is taken up.
    recovery: tokio::sync::Mutex<()>,
    layers: layers::Layers,
    /// The runtime's containers can be made before they are started; none while that is not known.
    waits_at_fifo: std::sync::OnceLock<bool>,
    /// A move between cgroups is under way that was made only to be made.
    moving: AtomicBool,
    _tenure: Tenure,
}

/// The engine; clones are the same one.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// Opens the engine, with its keeper, and takes up what an earlier one left.
    pub async fn open(options: Options) -> Result<Self> {
        Self::supervised(options, &Supervisor::default()).await
    }

    /// The same; the supervisor keeps its tasks running.
    pub async fn supervised(options: Options, supervisor: &Supervisor) -> Result<Self> {
        let paths = Paths::create(&options.root, &options.run).map_err(internal("engine directories"))?;
        let tenure = Tenure::begin(paths.run()).await.map_err(internal("engine"))?;
        let hierarchy = Hierarchy::open(&options.cgroup_root)?;
        let missing = hierarchy.missing();
        if !missing.is_empty() {
            tracing::warn!(?missing, "cgroup controllers are missing: their limits are not enforced");
        }
        let images = ImageStore::open(&paths.images())?;
        let hosts = match &options.registries {
            Some(path) => Hosts::load(path)?,
            None => Hosts::default(),
        };
        let (keeper, notices) = Keeper::connect(&options.keeper, paths.run(), supervisor).await?;
        let engine = Self {
            inner: Arc::new(Inner {
                host: host::look(hierarchy.controllers().clone()),
                network: Network::new(options.cni.clone()),
                sandbox_records: Records::new(paths.sandbox_records()),
                container_records: Records::new(paths.container_records()),
                objects: Mutex::default(),
                execs: Mutex::default(),
                events: broadcast::Sender::new(EVENTS),
                cpu_samples: stats::Samples::default(),
                recovery: tokio::sync::Mutex::default(),
                _tenure: tenure,
                layers: layers::Layers::default(),
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
        // Before anything is taken apart: that waits for exits.
        let (listening, notices) = (engine.clone(), Arc::new(tokio::sync::Mutex::new(notices)));
        let task = supervisor.clone().finish("engine notices", move || {
            let (engine, notices) = (listening.clone(), notices.clone());
            async move { engine.listen(&mut *notices.lock().await).await }
        });
        tokio::spawn(task);
        engine.recover().await?;
        drop(recovering);
        let keeping = engine.clone();
        tokio::spawn(supervisor.clone().finish("engine ports", move || keeping.clone().keep_ports()));
        let asking = engine.clone();
        tokio::spawn(async move {
            let answer = container::first::waits_at_fifo(&asking.inner.options.runtime).await;
            let _ = asking.inner.waits_at_fifo.set(answer);
        });
        Ok(engine)
    }

    /// The image store, for commands that have no CRI verb.
    pub fn images(&self) -> &ImageStore {
        &self.inner.images
    }

    /// Pod controllers that the host's cgroups do not have.
    pub fn missing_controllers(&self) -> Vec<&'static str> {
        self.inner.hierarchy.missing()
    }

    async fn listen(&self, notices: &mut tokio::sync::mpsc::UnboundedReceiver<Notice>) {
        while let Some(notice) = notices.recv().await {
            match notice {
                Notice::Exited(exit) => self.exited(exit),
                Notice::StdinClosed(id) => {
                    if let Ok(container) = self.container(&id) {
                        container.held.lock().stdin = None;
                    }
                }
                Notice::Replaced => {
                    // Beside this loop: exits are to be heard meanwhile.
                    let engine = self.clone();
                    tokio::spawn(async move { engine.hand_over().await });
                }
            }
        }
    }

    /// Runs what waits for disks beside the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.clone();
        tokio::task::spawn_blocking(move || work(&engine)).await.map_err(internal("engine"))?
    }

    /// A sandbox by its id or the beginning of it.
    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        let objects = self.inner.objects.lock();
        by_prefix(&objects.sandboxes, id).ok_or_else(|| {
            RuntimeError::NotFound(format!("an error occurred when try to find sandbox: {id:?}: not found"))
        })
    }

    /// A container by its id or the beginning of it.
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

    /// Writes a sandbox's record after changing it.
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

    /// Writes a container's record after changing it.
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

    /// Ids of everything that is not gone.
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

/// 64 hex digits, as other runtimes have.
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
