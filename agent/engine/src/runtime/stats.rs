//! Verbs that report usage.

use async_trait::async_trait;
use coracle_proto::cri;

use super::error::Result;

/// Resource usage of containers and sandboxes.
#[async_trait]
pub trait Stats: Send + Sync {
    /// Usage of one container.
    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats>;
    /// Usage of the containers that match.
    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>>;
    /// Usage of one sandbox and its containers.
    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats>;
    /// Usage of the sandboxes that match.
    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>>;
}
