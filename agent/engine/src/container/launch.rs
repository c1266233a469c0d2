//! Starts the OCI runtime for a container.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::cgroup::Hierarchy;
use crate::keeper::{self, Keeper, Started};
use crate::objects::{PrecreatedProcess, WaitsAt};
use crate::oci_runtime::OciRuntime;
use crate::paths::Paths;
use crate::record::ContainerRecord;
use crate::runtime::{Result, RuntimeError};
use coracle_keeper::wire::{Call, LaunchSpec};

/// An OCI runtime that runs longer is killed.
pub(super) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the OCI runtime through the keeper. After an error nothing is running.
pub(crate) struct Launcher {
    pub(crate) keeper: Keeper,
    pub(crate) oci: Arc<OciRuntime>,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) paths: Arc<Paths>,
}

impl Launcher {
    /// Creates and starts a container.
    pub(super) async fn run(&self, record: &ContainerRecord, program: &Path) -> Result<Started> {
        self.ensure_parent(record)?;
        let started = self.begin(&record.id, self.oci.run_spec(record, program)).await?;
        started.map_err(|error| match error {
            keeper::Error::Failed(failure) => {
                RuntimeError::Internal(format!("OCI runtime run failed: {}", failure.message))
            }
            other => other.into(),
        })
    }

    /// Creates a container, whose process then waits to be started.
    pub(super) async fn create(&self, record: &ContainerRecord, at: &WaitsAt) -> Result<PrecreatedProcess> {
        self.ensure_parent(record)?;
        let generation = self.keeper.generation();
        let started = self.begin(&record.id, self.oci.create_spec(record, &at.program)).await?;
        Ok(PrecreatedProcess { generation, at: at.clone(), started: started? })
    }

    /// Delegates controllers down to the parent of the container's cgroup; the runtime makes the leaf.
    fn ensure_parent(&self, record: &ContainerRecord) -> Result<()> {
        if let Some((parent, _)) = record.cgroup.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            self.hierarchy.ensure(parent)?;
        }
        Ok(())
    }

    /// Starts the OCI runtime and waits for the result.
    async fn begin(&self, id: &str, spec: LaunchSpec) -> Result<std::result::Result<Started, keeper::Error>> {
        let call = self.keeper.start(Call::Launch(spec), &[]);
        let Ok(started) = tokio::time::timeout(LAUNCH_TIMEOUT, call).await else {
            self.keeper.abort(id).await?;
            return Err(RuntimeError::DeadlineExceeded("the OCI runtime takes too long".into()));
        };
        if matches!(started, Err(keeper::Error::Gone)) {
            // The runtime dies with its keeper, and a new keeper answers only after that.
            self.keeper.wait_ready().await?;
        }
        self.paths.remove_transient(id);
        Ok(started)
    }
}
