//! Processes exits reported by the keeper: records, events, and the release of what ended.

use coracle_cli::causes;
use std::sync::Arc;

use coracle_proto::cri;

use super::cgroup::Hierarchy;
use super::error::internal;
use super::events::Events;
use super::exec_waiters::ExecWaiters;
use super::keeper::Keeper;
use super::objects::{Container, Objects, Sandbox};
use super::paths::{Paths, remove_tree};
use super::poststop;
use super::record::{ContainerPhase, SandboxPhase};
use crate::runtime::Result;
use coracle_keeper::exits::Exit;

/// Exit code of a container whose exit status is unknown.
const UNKNOWN: i32 = 255;

/// Handles exits of the keeper's tasks.
pub(crate) struct Exits {
    pub(crate) objects: Arc<Objects>,
    pub(crate) events: Events,
    pub(crate) waiters: Arc<ExecWaiters>,
    pub(crate) keeper: Keeper,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) paths: Arc<Paths>,
}

impl Exits {
    /// A task of the keeper ended.
    pub(crate) fn task_exited(self: &Arc<Self>, exit: Exit) {
        let Some(exit) = self.waiters.deliver(exit) else { return };
        match self.objects.with_id(&exit.id) {
            (Some(sandbox), _) => self.pause_exited(&sandbox),
            (_, Some(container)) => {
                let exits = self.clone();
                tokio::spawn(async move { exits.container_exited(&container, &exit).await });
            }
            // An exec whose session has ended.
            (None, None) => {
                let keeper = self.keeper.clone();
                tokio::spawn(async move { keeper.forget(&exit.id).await });
            }
        }
    }

    fn pause_exited(&self, sandbox: &Sandbox) {
        if sandbox.phase() != SandboxPhase::Ready {
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "pause has exited, sandbox is not ready");
        if let Err(error) =
            self.objects.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady)
        {
            tracing::error!(sandbox = sandbox.id, error = %causes::chain(&error), "sandbox exit not recorded");
        }
        self.events.emit_sandbox(sandbox, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Records a container's exit, releases its resources, and reports the exit.
    async fn container_exited(&self, container: &Container, exit: &Exit) {
        if self.record_exit(container, exit) {
            self.finish_exit(container).await;
        }
    }

    /// Records a container's exit; `false` if it was recorded before. Whoever gets `true` calls [`Exits::finish_exit`], which reports
    /// it.
    pub(crate) fn record_exit(&self, container: &Container, exit: &Exit) -> bool {
        if !container.is_live() {
            return false;
        }
        let cgroup = self.hierarchy.cgroup(&container.record.lock().cgroup);
        // Read before the cgroup is removed. Only counts for a failed container: the OOM killer may have killed just a child.
        let oom = cgroup.as_ref().is_ok_and(|cgroup| cgroup.oom_killed());
        let written = self.objects.change_container(container, |record| {
            // Reported twice, by List and by an event.
            if !matches!(record.phase, ContainerPhase::Starting | ContainerPhase::Running) {
                return false;
            }
            record.phase = ContainerPhase::Exited;
            record.releasing = true;
            record.exit_code = exit.code.unwrap_or(UNKNOWN);
            record.finished_at = exit.at;
            // A short-lived container can exit before its start is recorded.
            if record.started_at == 0 || record.started_at > exit.at {
                record.started_at = exit.at;
            }
            record.reason = match exit.code {
                None => "Unknown",
                Some(_) if oom => "OOMKilled",
                Some(0) => "Completed",
                Some(_) => "Error",
            }
            .into();
            if exit.code.is_none() {
                record.message = "the container ended while nobody watched".into();
            }
            true
        });
        match written {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::error!(container = container.id, error = %causes::chain(&error), "container exit not recorded")
            }
        }
        *container.held.lock() = Default::default();
        true
    }

    /// Releases the resources of a container whose exit is recorded, and reports the exit: the next container may get its devices
    /// from then on. What could not be released is retried when it is stopped or removed.
    pub(crate) async fn finish_exit(&self, container: &Container) {
        // In a shared PID namespace, other processes of the container may still run: kills them.
        if let Err(error) = self.release_processes(container).await {
            tracing::warn!(container = container.id, error = %causes::chain(&error), "resources not released after exit, stopping or removing the container will retry");
        }
        self.keeper.forget(&container.id).await;
        if let Err(error) = self.objects.change_container(container, |record| record.releasing = false) {
            tracing::error!(container = container.id, error = %causes::chain(&error), "end of the release not recorded");
        }
        container.exited.send_replace(true);
        self.events.emit_container(container, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Removes the cgroup and the OCI runtime's state of a container, and runs its hooks in between. Idempotent; concurrent calls
    /// are serialized.
    pub(crate) async fn release_processes(&self, container: &Container) -> Result<()> {
        let _alone = container.releasing.lock().await;
        let cgroup = container.record.lock().cgroup.clone();
        self.hierarchy.cgroup(&cgroup)?.remove().await?;
        let state = self.paths.runtime_state().join(&container.id);
        // Without it the OCI runtime has created nothing, or all hooks have run.
        if state.exists() {
            poststop::run(&self.paths.bundle(&container.id), &container.id).await;
        }
        remove_tree(&state).map_err(internal("runtime state"))
    }
}
