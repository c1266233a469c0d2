//! Stops and removes sandboxes.

use coracle_proto::cri;
use coracle_trace::{Stage, tracked};

use super::Sandboxes;
use crate::error::internal;
use crate::objects::Sandbox;
use crate::record::SandboxPhase;
use crate::runtime::{Result, RuntimeError};
use crate::sandbox_files;
use coracle_keeper::pidfd;

impl Sandboxes {
    pub(crate) async fn stop(&self, id: &str) -> Result<()> {
        let sandbox = match self.objects.sandbox(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = sandbox.verb.lock().await;
        self.teardown(&sandbox).await
    }

    /// Stops everything in the sandbox and releases its network; the record stays. Idempotent.
    ///
    /// Continues after errors and returns all of them; the next call retries.
    async fn teardown(&self, sandbox: &Sandbox) -> Result<()> {
        let mut errors = Vec::new();
        let was_ready = sandbox.phase() == SandboxPhase::Ready;
        if was_ready {
            self.objects.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady)?;
        }
        let containers = self.objects.containers_of(&sandbox.id);
        let kills = containers.iter().map(|container| self.containers.kill_with_sandbox(container));
        errors.extend(futures::future::join_all(kills).await.into_iter().filter_map(Result::err));
        if sandbox.record.lock().attached {
            match tracked(Stage::NetworkRemove, "", self.network.leave(sandbox)).await {
                Ok(()) => self.objects.change_sandbox(sandbox, |record| record.attached = false)?,
                Err(error) => errors.push(error),
            }
        }
        let cgroup = self.hierarchy.cgroup(&sandbox.record.lock().cgroup)?;
        let removed = tracked(Stage::CgroupRemove, "", cgroup.remove()).await;
        errors.extend(removed.err().map(RuntimeError::from));
        // `pause` may have been moved out of its cgroup.
        if let Some(pidfd) = &sandbox.held.lock().pidfd {
            let _ = pidfd::kill(pidfd, libc::SIGKILL);
        }
        if sandbox.record.lock().attached {
            return Err(join(errors));
        }
        let dir = self.paths.sandbox(&sandbox.id);
        errors.extend(sandbox_files::remove(&dir).map_err(internal("sandbox files")).err());
        if was_ready {
            self.events.emit_sandbox(sandbox, cri::ContainerEventType::ContainerStoppedEvent);
        }
        if errors.is_empty() { Ok(()) } else { Err(join(errors)) }
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        let sandbox = match self.objects.sandbox(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = sandbox.verb.lock().await;
        self.discard(&sandbox).await?;
        self.events.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes the sandbox with everything in it. The caller holds its lock, or the sandbox is not published yet.
    pub(crate) async fn discard(&self, sandbox: &Sandbox) -> Result<()> {
        self.teardown(sandbox).await?;
        self.objects.change_sandbox(sandbox, |record| record.phase = SandboxPhase::Removing)?;
        for container in self.objects.containers_of(&sandbox.id) {
            let _verb = container.verb.lock().await;
            self.containers.discard(&container).await?;
        }
        self.keeper.forget(&sandbox.id).await;
        self.objects.remove_sandbox(&sandbox.id)
    }
}

fn join(errors: Vec<RuntimeError>) -> RuntimeError {
    let mut errors = errors.into_iter();
    let first = errors.next().unwrap_or_else(|| RuntimeError::Internal("unknown".into()));
    let rest: Vec<String> = errors.map(|e| e.to_string()).collect();
    if rest.is_empty() { first } else { RuntimeError::Internal(format!("{first}; {}", rest.join("; "))) }
}
