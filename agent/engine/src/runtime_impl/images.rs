//! Images of the engine.

use async_trait::async_trait;
use coracle_proto::cri;

use crate::Engine;
use crate::runtime::{Images, Result};

#[async_trait]
impl Images for Engine {
    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        _sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String> {
        self.images.pull(image, auth).await
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        self.images.list(filter)
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        self.images.status(&image)
    }

    async fn image_details(&self, image: cri::ImageSpec) -> Result<serde_json::Value> {
        self.images.details(&image)
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        self.images.remove(&image)
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        self.images.fs_info().await
    }
}
