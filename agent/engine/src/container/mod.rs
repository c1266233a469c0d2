//! Containers: create, start, stop, remove.

// From a configuration to a bundle.
mod create;
// Runs the OCI runtime.
mod launch;
// Starts containers.
mod start;
// The FIFO at which created containers of runc wait.
mod fifo;
// The socket at which those of our own runtime wait.
mod socket;
// Lets those that wait there go on.
mod gate;
// Which runtimes support precreation.
mod precreation;
// Creates the first container in parallel with the sandbox's network.
mod precreate;
// Stop, kill, remove.
mod stop;
// Resource updates.
mod update;
// Recovery after a restart.
mod recover;

pub(crate) use launch::Launcher;
pub(crate) use precreation::Precreation;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;
use tokio::sync::watch;

use crate::bundle::Bundles;
use crate::cgroup_migration::Migration;
use crate::checkpoint;
use crate::events::Events;
use crate::exit::Exits;
use crate::image::ImageStore;
use crate::objects::Objects;
use crate::record::ContainerPhase;
use crate::runtime::{Result, RuntimeError};
use crate::tasks::Tasks;
use coracle_keeper::wire::Call;

/// The containers of the engine.
pub(crate) struct Containers {
    pub(crate) objects: Arc<Objects>,
    pub(crate) events: Events,
    pub(crate) images: ImageStore,
    pub(crate) bundles: Arc<Bundles>,
    pub(crate) launcher: Launcher,
    pub(crate) migration: Arc<Migration>,
    pub(crate) exits: Arc<Exits>,
    pub(crate) tasks: Arc<Tasks>,
    /// Which OCI runtimes support precreation.
    pub(crate) precreates: watch::Receiver<Precreation>,
}

impl Containers {
    pub(crate) fn list(&self, filter: &cri::ContainerFilter) -> Vec<cri::Container> {
        let containers = self.objects.containers();
        containers.iter().filter(|c| c.matches(filter)).map(|c| c.listed()).collect()
    }

    pub(crate) fn status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        let container = self.objects.container(id)?;
        let spec = if verbose { self.bundles.config(&container.id) } else { Default::default() };
        Ok(container.status(verbose, spec))
    }

    /// Opens the log again, after the caller moved the old file away.
    pub(crate) async fn reopen_log(&self, id: &str) -> Result<()> {
        let container = self.objects.container(id)?;
        if !container.is_live() {
            return Err(RuntimeError::FailedPrecondition("container is not running".into()));
        }
        Ok(self.launcher.keeper.call_ok(Call::Reopen { id: container.id.clone() }, &[]).await?)
    }

    /// Writes the state of a running container to an archive.
    pub(crate) async fn checkpoint(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        checkpoint::require_criu()?;
        let container = self.objects.container(id)?;
        if container.phase() != ContainerPhase::Running {
            return Err(RuntimeError::FailedPrecondition(format!("container {id} is not running")));
        }
        checkpoint::write(&container, &self.launcher.oci, &self.launcher.paths, to, timeout).await
    }
}
