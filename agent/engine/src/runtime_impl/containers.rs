//! Containers of the engine. Create, start and remove complete even if the caller is cancelled.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use crate::Engine;
use crate::offload::run_to_completion;
use crate::runtime::{Containers, Result};

#[async_trait]
impl Containers for Engine {
    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let (containers, sandbox) = (self.containers.clone(), sandbox.to_owned());
        run_to_completion(async move { containers.create(&sandbox, config, sandbox_config).await }).await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let (containers, id) = (self.containers.clone(), id.to_owned());
        run_to_completion(async move { containers.start(&id).await }).await
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        self.containers.stop(id, grace).await
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let (containers, id) = (self.containers.clone(), id.to_owned());
        run_to_completion(async move { containers.remove(&id).await }).await
    }

    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>> {
        Ok(self.containers.list(&filter.unwrap_or_default()))
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        self.containers.status(id, verbose)
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()> {
        self.containers.update_resources(id, resources).await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.containers.reopen_log(id).await
    }

    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        self.containers.checkpoint(id, to, timeout).await
    }
}
