//! Creates the first container of a sandbox in parallel with the sandbox's network.
//!
//! `runc create` takes most of a pod's start time and needs the sandbox's namespaces, but not its addresses. It leaves a
//! process that waits at a FIFO and runs nothing of the image before the FIFO is read. Starting the container reads the
//! FIFO instead of running `runc start`. Containers of our own runtime wait at a socket. Until then the container counts as being
//! created and is removed after a restart of the engine; one that was about to be started is started by the recovery.

use coracle_cli::causes;
use std::sync::Arc;

use coracle_proto::cri;
use coracle_trace::{Stage, tracked, within};

use super::Containers;
use super::gate;
use super::launch::LAUNCH_TIMEOUT;
use crate::cdi;
use crate::image::ImageRecord;
use crate::objects::{Container, PrecreatedProcess, Sandbox, WaitsAt};
use crate::offload::blocking;
use crate::record::{ContainerPhase, SandboxRecord};
use crate::runtime::{FirstConfig, FirstContainer, Result, RuntimeError};

impl Containers {
    /// Whether an OCI runtime supports precreation; false until it was detected.
    pub(crate) fn can_precreate(&self) -> bool {
        self.precreates.borrow().is_possible()
    }

    /// Creates the first container. `None` if there is no configuration or on failure: it is then created by
    /// `create_container`, which reports the error.
    pub(crate) async fn precreate(
        &self,
        sandbox: &Sandbox,
        offer: Option<FirstContainer>,
    ) -> Option<Arc<Container>> {
        let program = self.launcher.oci.program_for(&sandbox.record.lock().handler)?.to_owned();
        let at = self.precreates.borrow().of(&program)?;
        let FirstConfig { config, scope } = offer?.await.ok()?;
        // CDI devices may have hooks after the start, which the OCI runtime runs.
        if !cdi::requested(&config).is_ok_and(|names| names.is_empty()) {
            return None;
        }
        self.migration.prepare(sandbox);
        let record = sandbox.record.lock().clone();
        match within(scope, Box::pin(self.create_and_prelaunch(record, config, at))).await {
            Ok(container) => Some(container),
            Err(error) => {
                tracing::debug!(sandbox = sandbox.id, error = %causes::chain(&error), "first container not precreated");
                None
            }
        }
    }

    async fn create_and_prelaunch(
        &self,
        sandbox: SandboxRecord,
        config: cri::ContainerConfig,
        at: WaitsAt,
    ) -> Result<Arc<Container>> {
        let image = self.images.get(&config.image.clone().unwrap_or_default().image)?;
        let container = self.reserve(&sandbox, config, sandbox.config.clone(), &image)?;
        let _verb = container.verb.lock().await;
        if let Err(error) = self.prelaunch(&container, sandbox, image, &at).await {
            if let Err(cleanup) = self.discard(&container).await {
                tracing::warn!(container = container.id, error = %causes::chain(&cleanup), "failed container not cleaned up, removing its sandbox will retry");
            }
            return Err(error);
        }
        Ok(container.clone())
    }

    async fn prelaunch(
        &self,
        container: &Arc<Container>,
        sandbox: SandboxRecord,
        image: ImageRecord,
        at: &WaitsAt,
    ) -> Result<()> {
        let (building, bundles) = (container.clone(), self.bundles.clone());
        let build =
            blocking(move || bundles.build(&building, &sandbox, &image.config, ContainerPhase::Creating));
        let name = container.name();
        tracked(Stage::OciBundle, &name, build).await?;
        let record = container.record.lock().clone();
        let process = tracked(Stage::OciCreate, &name, self.launcher.create(&record, at)).await?;
        *container.waiting.lock() = Some(process);
        Ok(())
    }

    /// Starts a precreated container; it runs when this returns.
    pub(super) async fn start_precreated(
        &self,
        container: &Arc<Container>,
        waiting: PrecreatedProcess,
    ) -> Result<()> {
        let keeper = &self.launcher.keeper;
        let PrecreatedProcess { generation, at, started } = waiting;
        let (true, Some(pidfd)) = (keeper.generation() == generation, started.held.pidfd.clone()) else {
            // The new keeper would not report its exit: launches it again.
            self.exits.release_processes(container).await?;
            return self.launch(container).await;
        };
        let dir = self.launcher.paths.runtime_state().join(&container.id);
        let pass = blocking(move || {
            let passed = gate::pass(at.gate, &dir, &pidfd, LAUNCH_TIMEOUT);
            passed.map_err(|error| RuntimeError::Internal(format!("OCI runtime start failed: {error}")))
        });
        pass.await?;
        self.record_started(container, started, at.program)?;
        if keeper.generation() != generation {
            // A new keeper may have received its tasks before this one was running.
            self.tasks.hand_to_keeper().await;
        }
        Ok(())
    }
}
