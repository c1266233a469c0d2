//! Images of another CRI runtime.

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, WRITE_TIMEOUT, request};
use crate::runtime::{Images, Result};

#[async_trait]
impl Images for CriRuntime {
    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String> {
        // No timeout for pulls: the runtime fails a pull without progress.
        let message = cri::PullImageRequest { image: Some(image), auth, sandbox_config };
        Ok(self.images.clone().pull_image(message).await?.into_inner().image_ref)
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        let filter = filter.map(|image| cri::ImageFilter { image: Some(image) });
        Ok(call!(self.images.list_images(cri::ListImagesRequest { filter }), READ_TIMEOUT).images)
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        let message = cri::ImageStatusRequest { image: Some(image), verbose: false };
        Ok(call!(self.images.image_status(message), READ_TIMEOUT).image)
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        call!(self.images.remove_image(cri::RemoveImageRequest { image: Some(image) }), WRITE_TIMEOUT);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        Ok(call!(self.images.image_fs_info(cri::ImageFsInfoRequest {}), READ_TIMEOUT))
    }
}
