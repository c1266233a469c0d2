//! Stops, kills and removes containers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;

use super::Containers;
use crate::error::internal;
use crate::objects::Container;
use crate::offload::{blocking, run_to_completion};
use crate::record::ContainerPhase;
use crate::runtime::{Result, RuntimeError};
use coracle_keeper::pidfd;

/// How long a killed container may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Containers {
    pub(crate) async fn stop(&self, id: &str, grace: Duration) -> Result<()> {
        let container = match self.objects.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        if container.is_live() && !grace.is_zero() {
            let signal = container.record.lock().stop_signal;
            let pidfd = container.held.lock().pidfd.clone();
            if let Some(pidfd) = pidfd {
                let _ = pidfd::kill(&pidfd, signal);
            }
            if !self.wait_exit(&container, grace).await && container.is_live() {
                tracing::info!(
                    container = container.id,
                    ?grace,
                    "container did not end in time, killing what is left"
                );
            }
        }
        self.kill(&container).await
    }

    async fn wait_exit(&self, container: &Container, limit: Duration) -> bool {
        let mut exited = container.exited.subscribe();
        tokio::time::timeout(limit, exited.wait_for(|exited| *exited)).await.is_ok()
    }

    /// Kills everything in a container, and waits for its exit to be reported, thus for its hooks to end: they may reset its
    /// devices, which the next container gets. Retries a release that failed.
    pub(crate) async fn kill(&self, container: &Arc<Container>) -> Result<()> {
        match container.phase() {
            ContainerPhase::Starting | ContainerPhase::Running => {
                self.launcher.hierarchy.cgroup(&container.record.lock().cgroup)?.kill()?;
                if let Some(pidfd) = &container.held.lock().pidfd {
                    let _ = pidfd::kill(pidfd, libc::SIGKILL);
                }
            }
            // Its hooks may still run.
            ContainerPhase::Exited => {}
            ContainerPhase::Creating | ContainerPhase::Created | ContainerPhase::Removing => return Ok(()),
        }
        if !self.wait_exit(container, KILL_TIMEOUT).await {
            return Err(RuntimeError::DeadlineExceeded(format!(
                "an error occurs during waiting for container {:?} to be killed",
                container.id
            )));
        }
        let (exits, container) = (self.exits.clone(), container.clone());
        run_to_completion(async move { exits.release_processes(&container).await }).await
    }

    /// Kills a container because its sandbox is stopped; waits for a start in progress.
    pub(crate) async fn kill_with_sandbox(&self, container: &Arc<Container>) -> Result<()> {
        let starting = container.phase() == ContainerPhase::Starting;
        let _started = if starting { Some(container.verb.lock().await) } else { None };
        self.kill(container).await
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        let container = match self.objects.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        self.kill(&container).await?;
        self.discard(&container).await?;
        self.events.emit_container(&container, cri::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes a stopped container. The caller holds its lock, or the container is not published yet.
    pub(crate) async fn discard(&self, container: &Arc<Container>) -> Result<()> {
        let id = &container.id;
        let images = self.objects.change_container(container, |record| {
            record.phase = ContainerPhase::Removing;
            let own = std::iter::once(&record.image_id);
            own.chain(&record.volume_images).cloned().collect::<BTreeSet<_>>()
        })?;
        self.exits.release_processes(container).await?;
        let (bundles, removed) = (self.bundles.clone(), id.clone());
        blocking(move || bundles.remove(&removed).map_err(internal("root filesystem"))).await?;
        self.launcher.keeper.forget(id).await;
        for image in images {
            self.images.release(&image, id)?;
        }
        self.objects.remove_container(id)
    }
}
