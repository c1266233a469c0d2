//! Commands in containers, attach and port-forward.

// Requests of commands that enter a container without the OCI runtime.
mod enter_request;
// Starts commands.
mod start;
// Pipes of commands.
mod pipes;
// Terminals of commands.
mod terminal;
// Exec, to its end or with its streams.
mod session;
// Attach.
mod attach;
// Port-forward.
mod port_forward;

use std::path::PathBuf;
use std::sync::Arc;

use crate::cgroup::Hierarchy;
use crate::exec_waiters::ExecWaiters;
use crate::keeper::Keeper;
use crate::objects::{Container, Objects};
use crate::oci_runtime::OciRuntime;
use crate::paths::Paths;
use crate::record::ContainerPhase;
use crate::runtime::{Result, RuntimeError};

/// Commands in containers, and connections into sandboxes.
pub(crate) struct Execs {
    pub(crate) objects: Arc<Objects>,
    pub(crate) keeper: Keeper,
    /// Executable of the keeper, which also enters containers.
    pub(crate) keeper_program: PathBuf,
    pub(crate) waiters: Arc<ExecWaiters>,
    pub(crate) oci: Arc<OciRuntime>,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) paths: Arc<Paths>,
}

impl Execs {
    fn running(&self, id: &str) -> Result<Arc<Container>> {
        let container = self.objects.container(id)?;
        let phase = container.phase();
        if phase == ContainerPhase::Running {
            return Ok(container);
        }
        let state = match phase {
            ContainerPhase::Exited | ContainerPhase::Removing => "CONTAINER_EXITED",
            _ => "CONTAINER_CREATED",
        };
        Err(RuntimeError::FailedPrecondition(format!("container is in {state} state")))
    }
}
