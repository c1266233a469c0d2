//! Usage, as another CRI runtime reports it.

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, missing, request};
use crate::runtime::{Result, Stats};

#[async_trait]
impl Stats for CriRuntime {
    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats> {
        let message = cri::ContainerStatsRequest { container_id: id.into() };
        call!(self.runtime.container_stats(message), READ_TIMEOUT).stats.ok_or_else(|| missing("stats"))
    }

    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>> {
        Ok(call!(self.runtime.list_container_stats(cri::ListContainerStatsRequest { filter }), READ_TIMEOUT)
            .stats)
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats> {
        let message = cri::PodSandboxStatsRequest { pod_sandbox_id: id.into() };
        call!(self.runtime.pod_sandbox_stats(message), READ_TIMEOUT).stats.ok_or_else(|| missing("stats"))
    }

    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>> {
        let message = cri::ListPodSandboxStatsRequest { filter };
        Ok(call!(self.runtime.list_pod_sandbox_stats(message), READ_TIMEOUT).stats)
    }
}
