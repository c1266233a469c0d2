//! Sandboxes of the engine. Changes complete even if the caller is cancelled.

use async_trait::async_trait;
use coracle_proto::cri;

use crate::Engine;
use crate::offload::run_to_completion;
use crate::runtime::{FirstContainer, Result, Sandboxes};

#[async_trait]
impl Sandboxes for Engine {
    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String> {
        let (sandboxes, handler) = (self.sandboxes.clone(), handler.to_owned());
        let made = run_to_completion(async move { sandboxes.run(config, &handler, None).await });
        Ok(made.await?.0)
    }

    fn can_precreate(&self) -> bool {
        self.containers.can_precreate()
    }

    async fn run_pod_sandbox_precreating(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: FirstContainer,
    ) -> Result<(String, Option<String>)> {
        let (sandboxes, handler) = (self.sandboxes.clone(), handler.to_owned());
        run_to_completion(async move { sandboxes.run(config, &handler, Some(first)).await }).await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let (sandboxes, id) = (self.sandboxes.clone(), id.to_owned());
        run_to_completion(async move { sandboxes.stop(&id).await }).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let (sandboxes, id) = (self.sandboxes.clone(), id.to_owned());
        run_to_completion(async move { sandboxes.remove(&id).await }).await
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        self.sandboxes.status(id, verbose)
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>> {
        Ok(self.sandboxes.list(&filter.unwrap_or_default()))
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        _overhead: Option<cri::LinuxContainerResources>,
        _resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()> {
        // Only a notification: the caller has changed the pod's cgroup already.
        self.sandboxes.objects.sandbox(id).map(drop)
    }
}
