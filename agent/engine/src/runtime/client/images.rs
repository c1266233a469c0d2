//! Images of another CRI runtime.

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, WRITE_TIMEOUT, request};
use crate::runtime::{Images, Result, RuntimeError};

/// Errors of images for which CRI has no code: runtimes only write a text, which is read here and nowhere else.
fn image_error(status: tonic::Status) -> RuntimeError {
    let text = status.message();
    if text.contains("invalid reference format") || text.contains("couldn't parse image") {
        RuntimeError::BadImageName(text.to_owned())
    } else if text.starts_with("RegistryUnavailable") {
        RuntimeError::RegistryUnavailable(text.to_owned())
    } else {
        status.into()
    }
}

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
        let answer = self.images.clone().pull_image(message).await.map_err(image_error)?;
        Ok(answer.into_inner().image_ref)
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        let filter = filter.map(|image| cri::ImageFilter { image: Some(image) });
        Ok(call!(self.images.list_images(cri::ListImagesRequest { filter }), READ_TIMEOUT).images)
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        let message = cri::ImageStatusRequest { image: Some(image), verbose: false };
        let answer = self.images.clone().image_status(request(message, READ_TIMEOUT)).await;
        Ok(answer.map_err(image_error)?.into_inner().image)
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        call!(self.images.remove_image(cri::RemoveImageRequest { image: Some(image) }), WRITE_TIMEOUT);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        Ok(call!(self.images.image_fs_info(cri::ImageFsInfoRequest {}), READ_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_runtimes_become_errors_of_images() {
        let bad_name = "failed to pull and unpack image \"A\": invalid reference format: repository name must be lowercase";
        let unreachable = "RegistryUnavailable: dial tcp: i/o timeout";
        for (status, expected) in [
            (tonic::Status::unknown(bad_name), RuntimeError::BadImageName(bad_name.into())),
            (tonic::Status::unavailable(unreachable), RuntimeError::RegistryUnavailable(unreachable.into())),
            (tonic::Status::not_found("image"), RuntimeError::NotFound("image".into())),
        ] {
            assert_eq!(image_error(status), expected);
        }
    }
}
