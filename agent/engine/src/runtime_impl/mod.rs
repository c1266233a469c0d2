//! Implements the traits of [`crate::runtime`] for the engine.

mod sandboxes;
mod containers;
mod execs;
mod images;
mod stats;

use async_trait::async_trait;
use coracle_proto::cri;
use futures::stream::BoxStream;

use crate::Engine;
use crate::runtime::{Result, Runtime};

#[async_trait]
impl Runtime for Engine {
    async fn version(&self) -> Result<cri::VersionResponse> {
        Ok(cri::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "coracle".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse> {
        Ok(self.info.status(verbose).await)
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        // The agent writes the CNI configuration and knows the range.
        tracing::debug!(pod_cidr, "runtime configuration");
        Ok(())
    }

    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>> {
        Ok(self.events.subscribe())
    }
}
