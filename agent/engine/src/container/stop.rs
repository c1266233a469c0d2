//! Stops, kills and removes containers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;

use crate::error::internal;
use crate::paths::remove_tree;
use crate::record::ContainerPhase;
use crate::runtime::{Result, RuntimeError};
use crate::{Container, Engine, rootfs};
use coracle_keeper::pidfd;

/// How long a killed container may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Engine {
    pub(crate) async fn stop(&self, id: &str, grace: Duration) -> Result<()> {
        let container = match self.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        if !container.is_live() {
            return Ok(());
        }
        if !grace.is_zero() {
            let signal = container.record.lock().stop_signal;
            let pidfd = container.held.lock().pidfd.clone();
            if let Some(pidfd) = pidfd {
                let _ = pidfd::kill(&pidfd, signal);
            }
            if self.wait_exit(&container, grace).await {
                return Ok(());
            }
            tracing::info!(container = container.id, ?grace, "container did not stop in time, killing it");
        }
        self.kill_container(&container).await
    }

    async fn wait_exit(&self, container: &Container, limit: Duration) -> bool {
        let mut exited = container.exited.subscribe();
        tokio::time::timeout(limit, exited.wait_for(|exited| *exited)).await.is_ok()
    }

    /// Kills everything in a container and waits for its exit to be recorded.
    pub(crate) async fn kill_container(&self, container: &Arc<Container>) -> Result<()> {
        if !container.is_live() {
            return Ok(());
        }
        self.inner.hierarchy.cgroup(&container.record.lock().cgroup)?.kill()?;
        if let Some(pidfd) = &container.held.lock().pidfd {
            let _ = pidfd::kill(pidfd, libc::SIGKILL);
        }
        if self.wait_exit(container, KILL_TIMEOUT).await {
            return Ok(());
        }
        Err(RuntimeError::DeadlineExceeded(format!(
            "an error occurs during waiting for container {:?} to be killed",
            container.id
        )))
    }

    /// Kills a container because its sandbox is stopped; waits for a start in progress.
    pub(crate) async fn kill_with_sandbox(&self, container: &Arc<Container>) -> Result<()> {
        let starting = container.phase() == ContainerPhase::Starting;
        let _started = if starting { Some(container.verb.lock().await) } else { None };
        self.kill_container(container).await
    }

    /// Removes the cgroup and the OCI runtime's state of a container. Concurrent calls are serialized.
    pub(crate) async fn release_processes(&self, container: &Container) -> Result<()> {
        let _alone = container.releasing.lock().await;
        let cgroup = container.record.lock().cgroup.clone();
        self.inner.hierarchy.cgroup(&cgroup)?.remove().await?;
        remove_tree(&self.inner.paths.runtime_state().join(&container.id)).map_err(internal("runtime state"))
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        let container = match self.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        self.kill_container(&container).await?;
        self.discard_container(&container).await?;
        self.emit_container(&container, cri::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes a stopped container. The caller holds its lock, or the container is not published yet.
    pub(crate) async fn discard_container(&self, container: &Arc<Container>) -> Result<()> {
        let id = &container.id;
        let images = self.change_container(container, |record| {
            record.phase = ContainerPhase::Removing;
            let own = std::iter::once(&record.image_id);
            own.chain(&record.volume_images).cloned().collect::<BTreeSet<_>>()
        })?;
        self.release_processes(container).await?;
        let (rootfs, bundle) = (self.rootfs(id), self.inner.paths.bundle(id));
        let remove = move || {
            rootfs.remove()?;
            for dir in super::MOUNTS {
                rootfs::unmount_below(&bundle.join(dir))?;
            }
            remove_tree(&bundle)
        };
        self.blocking(move |_| remove().map_err(internal("root filesystem"))).await?;
        self.inner.keeper.forget(id).await;
        for image in images {
            self.inner.images.release(&image, id)?;
        }
        self.inner.container_records.remove(id).map_err(internal("container record"))?;
        self.inner.objects.lock().containers.remove(id);
        Ok(())
    }
}
