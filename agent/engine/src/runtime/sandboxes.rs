//! Verbs on sandboxes.

use async_trait::async_trait;
use coracle_proto::cri;
use coracle_trace::Scope;
use tokio::sync::oneshot;

use super::error::Result;

/// The first container of a sandbox.
#[derive(Debug)]
pub struct FirstConfig {
    /// Its configuration.
    pub config: cri::ContainerConfig,
    /// Where the stages of its creation are recorded.
    pub scope: Scope,
}

/// Delivers the configuration of a sandbox's first container; if the sender is dropped, no container is precreated.
pub type FirstContainer = oneshot::Receiver<FirstConfig>;

/// Sandboxes: the environment that the containers of a pod share.
///
/// Stop and remove verbs are idempotent and succeed for ids that are gone; create verbs are not retried inside:
/// an error leaves nothing behind that a later remove or restart does not clean.
#[async_trait]
pub trait Sandboxes: Send + Sync {
    /// Creates and starts a sandbox with its network; returns its id.
    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String>;
    /// Whether `run_pod_sandbox_precreating` can create the first container.
    fn can_precreate(&self) -> bool {
        false
    }
    /// As `run_pod_sandbox`, and creates the first container in parallel with the sandbox's network; returns the ids of both.
    ///
    /// Without a second id no container was created: call `create_container`, which creates it or returns the error.
    async fn run_pod_sandbox_precreating(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: FirstContainer,
    ) -> Result<(String, Option<String>)> {
        drop(first);
        Ok((self.run_pod_sandbox(config, handler).await?, None))
    }
    /// Kills all containers of the sandbox and releases its network.
    async fn stop_pod_sandbox(&self, id: &str) -> Result<()>;
    /// Removes the sandbox and its containers.
    async fn remove_pod_sandbox(&self, id: &str) -> Result<()>;
    /// Status of one sandbox; with containers' statuses where the runtime can give them.
    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse>;
    /// Sandboxes that match.
    async fn list_pod_sandboxes(&self, filter: Option<cri::PodSandboxFilter>)
    -> Result<Vec<cri::PodSandbox>>;
    /// Changes the limits of a sandbox.
    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()>;
}
