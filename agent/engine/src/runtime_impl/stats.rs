//! Usage of the containers and sandboxes of the engine.

use async_trait::async_trait;
use coracle_proto::cri;

use crate::Engine;
use crate::offload::blocking;
use crate::runtime::{Result, Stats};

#[async_trait]
impl Stats for Engine {
    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats> {
        let (usage, container) = (self.usage.clone(), self.containers.objects.container(id)?);
        blocking(move || usage.of_container(&container, true)).await
    }

    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>> {
        let filter = filter.unwrap_or_default();
        let filter = cri::ContainerFilter {
            id: filter.id,
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
            state: Some(cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() }),
        };
        let usage = self.usage.clone();
        blocking(move || usage.of_containers(&filter)).await
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats> {
        let (usage, sandbox) = (self.usage.clone(), self.sandboxes.objects.sandbox(id)?);
        blocking(move || usage.of_sandbox(&sandbox)).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>> {
        let filter = filter.unwrap_or_default();
        let filter = cri::PodSandboxFilter {
            id: filter.id,
            label_selector: filter.label_selector,
            state: Some(cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady.into() }),
        };
        let usage = self.usage.clone();
        blocking(move || {
            usage.drop_stale_samples();
            Ok(usage.of_sandboxes(&filter))
        })
        .await
    }
}
