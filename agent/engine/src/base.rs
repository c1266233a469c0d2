//! What the parts of the engine are built on.

use std::sync::Arc;

use coracle_cli::supervise::Supervisor;
use tokio::sync::mpsc::UnboundedReceiver;

use super::cgroup::Hierarchy;
use super::error::internal;
use super::events::Events;
use super::exec_waiters::ExecWaiters;
use super::exit::Exits;
use super::host;
use super::image::{ImageStore, RegistryConfig};
use super::keeper::{Keeper, KeeperEvent};
use super::objects::Objects;
use super::oci_runtime::OciRuntime;
use super::options::Options;
use super::paths::Paths;
use super::pod_network::PodNetwork;
use super::run_lock::RunLock;
use super::spec::Host;
use super::tasks::Tasks;
use crate::runtime::Result;

/// Opened directories, stores and connections.
pub(crate) struct Base {
    pub(crate) paths: Arc<Paths>,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) host: Host,
    pub(crate) store: ImageStore,
    pub(crate) registries: RegistryConfig,
    pub(crate) keeper: Keeper,
    pub(crate) network: Arc<PodNetwork>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) events: Events,
    pub(crate) oci: Arc<OciRuntime>,
    pub(crate) waiters: Arc<ExecWaiters>,
}

impl Base {
    /// Opens everything and starts or connects to the keeper, whose events are returned.
    pub(crate) async fn open(
        options: &Options,
        supervisor: &Supervisor,
    ) -> Result<(Self, UnboundedReceiver<KeeperEvent>)> {
        let paths = Paths::create(&options.root, &options.run).map_err(internal("engine directories"))?;
        let paths = Arc::new(paths);
        let run_lock = RunLock::acquire(paths.run()).await?;
        let hierarchy = Hierarchy::open(&options.cgroup_root)?;
        let missing = hierarchy.missing();
        if !missing.is_empty() {
            tracing::warn!(?missing, "cgroup controllers are missing: their limits are not enforced");
        }
        let store = ImageStore::open(&paths.images())?;
        let registries = match &options.registries {
            Some(path) => RegistryConfig::load(path)?,
            None => RegistryConfig::default(),
        };
        let (keeper, notices) = Keeper::connect(&options.keeper, paths.run(), supervisor).await?;
        let host = host::detect(hierarchy.controllers().clone());
        let objects = Arc::new(Objects::load(&paths, run_lock)?);
        let base = Self {
            hierarchy: Arc::new(hierarchy),
            host,
            store,
            registries,
            keeper,
            network: Arc::new(PodNetwork::new(options.cni.clone(), paths.clone())),
            events: Events::new(objects.clone()),
            objects,
            oci: Arc::new(OciRuntime::new(
                options.runtime.clone(),
                options.own_runtime.as_deref(),
                paths.clone(),
            )),
            waiters: Arc::default(),
            paths,
        };
        Ok((base, notices))
    }

    /// The keeper's tasks, and the handling of their exits.
    pub(crate) fn tasks(&self) -> Arc<Tasks> {
        let exits = Exits {
            objects: self.objects.clone(),
            events: self.events.clone(),
            waiters: self.waiters.clone(),
            keeper: self.keeper.clone(),
            hierarchy: self.hierarchy.clone(),
            paths: self.paths.clone(),
        };
        Arc::new(Tasks {
            objects: self.objects.clone(),
            keeper: self.keeper.clone(),
            exits: Arc::new(exits),
            waiters: self.waiters.clone(),
            oci: self.oci.clone(),
            recovery: tokio::sync::Mutex::default(),
        })
    }
}
