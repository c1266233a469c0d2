//! Verbs on containers.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use super::error::Result;

/// Containers, by id.
///
/// Stop and remove verbs are idempotent and succeed for ids that are gone; create verbs are not retried inside:
/// an error leaves nothing behind that a later remove or restart does not clean.
#[async_trait]
pub trait Containers: Send + Sync {
    /// Prepares a container (root filesystem, configuration) without running it; returns its id.
    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String>;
    /// Runs a created container.
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Sends the stop signal, waits `grace`, kills. Returns when the container is exited.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()>;
    /// Kills and removes the container with its root filesystem; its log stays.
    async fn remove_container(&self, id: &str) -> Result<()>;
    /// Containers that match.
    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>>;
    /// Status of one container.
    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse>;
    /// Changes limits of a container; zero and empty fields stay as they are.
    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()>;
    /// Opens the log path again, after the caller moved the old file away.
    async fn reopen_container_log(&self, id: &str) -> Result<()>;
    /// Writes the state of a running container to an archive; a zero `timeout` is the runtime's own.
    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()>;
}
