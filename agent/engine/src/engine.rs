//! The engine: its parts, and how they are put together.

use std::sync::Arc;

use coracle_cli::supervise::Supervisor;
use tokio::sync::watch;

use super::base::Base;
use super::bundle::Bundles;
use super::cgroup_migration::Migration;
use super::container::{Containers, Launcher, Precreation};
use super::events::Events;
use super::exec::Execs;
use super::host_ports::restore_host_ports;
use super::image::ImageStore;
use super::images::Images;
use super::info::Info;
use super::options::Options;
use super::recover::Recovery;
use super::sandbox::Sandboxes;
use super::stats::Usage;
use super::tasks::Tasks;
use crate::runtime::Result;

/// The engine. Clones share their state.
///
/// ```no_run
/// # async fn example() -> coracle_engine::runtime::Result<()> {
/// use coracle_engine::Engine;
/// use coracle_engine::options::Options;
/// use coracle_engine::runtime::Runtime;
///
/// let engine = Engine::open(Options { root: "/srv/engine".into(), ..Options::default() }).await?;
/// println!("{:?}", engine.version().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) containers: Arc<Containers>,
    pub(crate) execs: Arc<Execs>,
    pub(crate) images: Arc<Images>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) events: Events,
    pub(crate) info: Arc<Info>,
}

impl Engine {
    /// Opens the engine, starts or connects to its keeper, and recovers the state of an earlier engine.
    pub async fn open(options: Options) -> Result<Self> {
        Self::supervised(options, &Supervisor::default()).await
    }

    /// As [`Engine::open`], with background tasks under `supervisor`.
    pub async fn supervised(options: Options, supervisor: &Supervisor) -> Result<Self> {
        let (base, notices) = Base::open(&options, supervisor).await?;
        let tasks = base.tasks();
        let oci = base.oci.clone();
        let (detected, precreates) = watch::channel(Precreation::default());
        let engine = Self::assemble(base, &tasks, options, precreates);
        let recovering = tasks.recovery.lock().await;
        // Before exit events: what is being released now was interrupted.
        let recovery = engine.recovery();
        // Before recovery: cleaning up waits for exit events.
        let (listening, notices) = (tasks.clone(), Arc::new(tokio::sync::Mutex::new(notices)));
        let task = supervisor.clone().finish("engine notices", move || {
            let (tasks, notices) = (listening.clone(), notices.clone());
            async move { tasks.listen(&mut *notices.lock().await).await }
        });
        tokio::spawn(task);
        recovery.run().await?;
        drop(recovering);
        let network = engine.sandboxes.network.clone();
        let task = supervisor.clone().finish("engine ports", move || restore_host_ports(network.clone()));
        tokio::spawn(task);
        tokio::spawn(async move { detected.send_replace(Precreation::detect(&oci).await) });
        Ok(engine)
    }

    /// The image store, for commands that have no CRI verb.
    pub fn images(&self) -> &ImageStore {
        &self.images.store
    }

    /// Required cgroup controllers that the host does not have.
    pub fn missing_controllers(&self) -> Vec<&'static str> {
        self.info.hierarchy.missing()
    }

    /// Builds the parts; `precreates` tells which OCI runtimes support precreation.
    fn assemble(
        base: Base,
        tasks: &Arc<Tasks>,
        options: Options,
        precreates: watch::Receiver<Precreation>,
    ) -> Self {
        let migration = Arc::new(Migration::new(base.hierarchy.clone()));
        let containers = Containers {
            objects: base.objects.clone(),
            events: base.events.clone(),
            images: base.store.clone(),
            bundles: Arc::new(Bundles {
                objects: base.objects.clone(),
                images: base.store.clone(),
                paths: base.paths.clone(),
                host: base.host,
                cdi_dirs: options.cdi_dirs.clone(),
                seccomp_profiles: options.seccomp_profiles.clone(),
            }),
            launcher: Launcher {
                keeper: base.keeper.clone(),
                oci: base.oci.clone(),
                hierarchy: base.hierarchy.clone(),
                paths: base.paths.clone(),
            },
            migration: migration.clone(),
            exits: tasks.exits.clone(),
            tasks: tasks.clone(),
            precreates,
        };
        let containers = Arc::new(containers);
        let sandboxes = Sandboxes {
            objects: base.objects.clone(),
            events: base.events.clone(),
            containers: containers.clone(),
            network: base.network.clone(),
            keeper: base.keeper.clone(),
            tasks: tasks.clone(),
            hierarchy: base.hierarchy.clone(),
            migration,
            paths: base.paths.clone(),
            oci: base.oci.clone(),
            cgroup_parent: options.cgroup_parent.clone(),
        };
        let execs = Execs {
            objects: base.objects.clone(),
            keeper: base.keeper,
            keeper_program: options.keeper.clone(),
            waiters: base.waiters,
            oci: base.oci.clone(),
            hierarchy: base.hierarchy.clone(),
            paths: base.paths.clone(),
        };
        let usage = Arc::new(Usage::new(base.objects, base.hierarchy.clone(), base.paths.clone()));
        let images = Images {
            store: base.store,
            registries: base.registries,
            usage: usage.clone(),
            paths: base.paths,
        };
        Self {
            sandboxes: Arc::new(sandboxes),
            containers,
            execs: Arc::new(execs),
            images: Arc::new(images),
            usage,
            events: base.events,
            info: Arc::new(Info { options, hierarchy: base.hierarchy, network: base.network, oci: base.oci }),
        }
    }

    fn recovery(&self) -> Recovery<'_> {
        let mut interrupted = self.sandboxes.objects.containers();
        interrupted.retain(|container| container.is_releasing());
        Recovery {
            objects: &self.sandboxes.objects,
            sandboxes: &self.sandboxes,
            containers: &self.containers,
            tasks: &self.sandboxes.tasks,
            bundles: &self.containers.bundles,
            images: &self.images.store,
            network: &self.sandboxes.network,
            paths: &self.sandboxes.paths,
            interrupted,
        }
    }
}
