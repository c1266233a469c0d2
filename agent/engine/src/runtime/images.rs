//! Verbs on images.

use async_trait::async_trait;
use coracle_proto::cri;

use super::error::Result;

/// Annotation of imported images: pulling their name uses the local image.
pub const IMPORTED: &str = "coracle/imported";
/// Annotation of a pull that contacts the registry even if the image was imported.
pub const ASK_REGISTRY: &str = "coracle/ask-registry";

/// Images of the node.
#[async_trait]
pub trait Images: Send + Sync {
    /// Pulls an image; returns the reference to run it by.
    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String>;
    /// Images of the node.
    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>>;
    /// One image, `None` when it is not on the node.
    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>>;
    /// Additional information about an image as JSON; null if there is none.
    async fn image_details(&self, _image: cri::ImageSpec) -> Result<serde_json::Value> {
        Ok(serde_json::Value::Null)
    }
    /// Removes an image; succeeds if it does not exist.
    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()>;
    /// Disk used by images and by containers' writable layers.
    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse>;
}
