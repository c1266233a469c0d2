//! Exits: from the keeper into records and events.

use std::sync::Arc;

use coracle_proto::cri;

use super::record::{ContainerPhase, SandboxPhase};
use super::{Container, Engine, Sandbox};
use coracle_keeper::exits::Exit;

/// Exit code of a container whose end nobody saw.
const UNKNOWN: i32 = 255;

impl Engine {
    /// A task of the keeper ended.
    pub(super) fn exited(&self, exit: Exit) {
        let waiter = self.inner.execs.lock().remove(&exit.id);
        let exit = match waiter {
            None => exit,
            Some((_, waiter)) => match waiter.send(exit) {
                Ok(()) => return,
                // Nobody waits any more: it is forgotten below.
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
            // An exec whose session is over.
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
        tracing::warn!(sandbox = sandbox.id, "pause is gone, the sandbox is not ready");
        if let Err(error) = self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady) {
            tracing::error!(sandbox = sandbox.id, %error, "recording the end of a sandbox");
        }
        self.emit_sandbox(sandbox, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Records a container's end, then lets go of what it held.
    pub(super) async fn container_exited(&self, container: &Arc<Container>, exit: &Exit) {
        if !container.is_live() {
            return;
        }
        let cgroup = self.inner.hierarchy.cgroup(&container.record.lock().cgroup);
        // Read before the cgroup goes; a container may end well although a child of it was killed.
        let oom = cgroup.as_ref().is_ok_and(|cgroup| cgroup.oom_killed());
        let written = self.change_container(container, |record| {
            // Told twice, by a list and by a notice.
            if !matches!(record.phase, ContainerPhase::Starting | ContainerPhase::Running) {
                return false;
            }
            record.phase = ContainerPhase::Exited;
            record.exit_code = exit.code.unwrap_or(UNKNOWN);
            record.finished_at = exit.at;
            // A short life can be over before its beginning is written down.
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
            Err(error) => tracing::error!(container = container.id, %error, "recording an exit"),
        }
        *container.held.lock() = Default::default();
        // Processes that outlived the first one in a shared PID namespace go too.
        if let Err(error) = self.release_processes(container).await {
            tracing::warn!(container = container.id, %error, "after an exit; removing the container tries again");
        }
        self.inner.keeper.forget(&container.id).await;
        container.exited.send_replace(true);
        self.emit_container(container, cri::ContainerEventType::ContainerStoppedEvent);
    }
}
