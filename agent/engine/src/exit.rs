//! Processes exits reported by the keeper: records and events.

use std::sync::Arc;

use coracle_proto::cri;

use super::record::{ContainerPhase, SandboxPhase};
use super::{Container, Engine, Sandbox};
use coracle_keeper::exits::Exit;

/// Exit code of a container whose exit status is unknown.
const UNKNOWN: i32 = 255;

impl Engine {
    /// A task of the keeper ended.
    pub(super) fn exited(&self, exit: Exit) {
        let waiter = self.inner.execs.lock().remove(&exit.id);
        let exit = match waiter {
            None => exit,
            Some((_, waiter)) => match waiter.send(exit) {
                Ok(()) => return,
                // No waiter left: the task is forgotten below.
                Err(exit) => exit,
            },
        };
        let (sandbox, container) = {
            let objects = self.inner.objects.lock();
            (objects.sandboxes.get(&exit.id).cloned(), objects.containers.get(&exit.id).cloned())
        };
        match (sandbox, container) {
            (Some(sandbox), _) => self.pause_exited(&sandbox),
            (_, Some(container)) => {
                let engine = self.clone();
                tokio::spawn(async move { engine.container_exited(&container, &exit).await });
            }
            // An exec whose session has ended.
            (None, None) => {
                let engine = self.clone();
                tokio::spawn(async move { engine.inner.keeper.forget(&exit.id).await });
            }
        }
    }

    fn pause_exited(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.phase() != SandboxPhase::Ready {
            return;
        }
        tracing::warn!(sandbox = sandbox.id, "pause has exited, sandbox is not ready");
        if let Err(error) = self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady) {
            tracing::error!(sandbox = sandbox.id, %error, "sandbox exit not recorded");
        }
        self.emit_sandbox(sandbox, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Records a container's exit, then releases its resources.
    pub(super) async fn container_exited(&self, container: &Arc<Container>, exit: &Exit) {
        if !container.is_live() {
            return;
        }
        let cgroup = self.inner.hierarchy.cgroup(&container.record.lock().cgroup);
        // Read before the cgroup is removed. Only counts for a failed container: the OOM killer may have killed just a child.
        let oom = cgroup.as_ref().is_ok_and(|cgroup| cgroup.oom_killed());
        let written = self.change_container(container, |record| {
            // Reported twice, by List and by an event.
            if !matches!(record.phase, ContainerPhase::Starting | ContainerPhase::Running) {
                return false;
            }
            record.phase = ContainerPhase::Exited;
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
            Ok(false) => return,
            Err(error) => tracing::error!(container = container.id, %error, "container exit not recorded"),
        }
        *container.held.lock() = Default::default();
        // In a shared PID namespace, other processes of the container may still run: kills them.
        if let Err(error) = self.release_processes(container).await {
            tracing::warn!(container = container.id, %error, "resources not released after exit, removing the container will retry");
        }
        self.inner.keeper.forget(&container.id).await;
        container.exited.send_replace(true);
        self.emit_container(container, cri::ContainerEventType::ContainerStoppedEvent);
    }
}
