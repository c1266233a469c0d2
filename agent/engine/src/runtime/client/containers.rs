//! Containers of another CRI runtime.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, WRITE_TIMEOUT, request};
use crate::runtime::{Containers, Result};

#[async_trait]
impl Containers for CriRuntime {
    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let message = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(call!(self.runtime.create_container(message), WRITE_TIMEOUT).container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.start_container(cri::StartContainerRequest { container_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let message = cri::StopContainerRequest { container_id: id.into(), timeout };
        call!(self.runtime.stop_container(message), grace.saturating_add(WRITE_TIMEOUT));
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.remove_container(cri::RemoveContainerRequest { container_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>> {
        Ok(call!(self.runtime.list_containers(cri::ListContainersRequest { filter }), READ_TIMEOUT)
            .containers)
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        let message = cri::ContainerStatusRequest { container_id: id.into(), verbose };
        Ok(call!(self.runtime.container_status(message), READ_TIMEOUT))
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()> {
        let message = cri::UpdateContainerResourcesRequest {
            container_id: id.into(),
            linux: Some(resources),
            ..Default::default()
        };
        call!(self.runtime.update_container_resources(message), READ_TIMEOUT);
        Ok(())
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let message = cri::ReopenContainerLogRequest { container_id: id.into() };
        call!(self.runtime.reopen_container_log(message), READ_TIMEOUT);
        Ok(())
    }

    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        let message = cri::CheckpointContainerRequest {
            container_id: id.into(),
            location: to.display().to_string(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        call!(self.runtime.checkpoint_container(message), timeout.max(WRITE_TIMEOUT));
        Ok(())
    }
}
