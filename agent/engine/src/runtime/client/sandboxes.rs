//! Sandboxes of another CRI runtime.

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, WRITE_TIMEOUT, request};
use crate::runtime::{Result, Sandboxes};

#[async_trait]
impl Sandboxes for CriRuntime {
    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String> {
        let message = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        Ok(call!(self.runtime.run_pod_sandbox(message), WRITE_TIMEOUT).pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        call!(
            self.runtime.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.into() }),
            WRITE_TIMEOUT
        );
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let message = cri::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        call!(self.runtime.remove_pod_sandbox(message), WRITE_TIMEOUT);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        let message = cri::PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose };
        Ok(call!(self.runtime.pod_sandbox_status(message), READ_TIMEOUT))
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>> {
        Ok(call!(self.runtime.list_pod_sandbox(cri::ListPodSandboxRequest { filter }), READ_TIMEOUT).items)
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()> {
        let message =
            cri::UpdatePodSandboxResourcesRequest { pod_sandbox_id: id.into(), overhead, resources };
        call!(self.runtime.update_pod_sandbox_resources(message), READ_TIMEOUT);
        Ok(())
    }
}
