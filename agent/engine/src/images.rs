//! CRI's view of the image store.

use std::path::PathBuf;
use std::sync::Arc;

use coracle_proto::cri;
use oci_spec::image::RootFs;
use serde_json::json;

use super::image::{Credentials, ImageRecord, ImageStore, RegistryConfig};
use super::offload::blocking;
use super::paths::Paths;
use super::stamp::now;
use super::stats::Usage;
use crate::runtime::{ASK_REGISTRY, IMPORTED, Result};

/// The images of the engine.
pub(crate) struct Images {
    pub(crate) store: ImageStore,
    /// Mirrors and credentials of registries.
    pub(crate) registries: RegistryConfig,
    pub(crate) usage: Arc<Usage>,
    pub(crate) paths: Arc<Paths>,
}

impl Images {
    /// Pulls an image; returns its id.
    pub(crate) async fn pull(&self, image: cri::ImageSpec, auth: Option<cri::AuthConfig>) -> Result<String> {
        // Imported images are used as they are; the node may have no network.
        let asks = image.annotations.contains_key(ASK_REGISTRY);
        if let Some(record) = self.store.find(&image.image)?.filter(|record| record.imported && !asks) {
            return Ok(record.id);
        }
        let credentials = match &auth {
            Some(auth) => Credentials::from_parts(
                &auth.username,
                &auth.password,
                &auth.auth,
                &auth.identity_token,
                &auth.registry_token,
            ),
            None => Credentials::Anonymous,
        };
        Ok(self.store.pull(&image.image, &credentials, &self.registries, None).await?.id)
    }

    /// The image that is asked for, or all.
    pub(crate) fn list(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        match filter.filter(|spec| !spec.image.is_empty()) {
            Some(spec) => Ok(self.store.find(&spec.image)?.iter().map(image_of).collect()),
            None => Ok(self.store.list()?.iter().map(image_of).collect()),
        }
    }

    pub(crate) fn status(&self, image: &cri::ImageSpec) -> Result<Option<cri::Image>> {
        Ok(self.store.find(&image.image)?.as_ref().map(image_of))
    }

    /// Fields of the image configuration; null for an image that is not here.
    pub(crate) fn details(&self, image: &cri::ImageSpec) -> Result<serde_json::Value> {
        Ok(self.store.find(&image.image)?.as_ref().map(image_info).unwrap_or_default())
    }

    pub(crate) fn remove(&self, image: &cri::ImageSpec) -> Result<()> {
        Ok(self.store.remove(&image.image)?)
    }

    /// Disk used by images and by writable layers.
    pub(crate) async fn fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        let usage = |path: PathBuf, bytes: u64| cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: path.display().to_string() }),
            used_bytes: Some(cri::UInt64Value { value: bytes }),
            inodes_used: None,
        };
        let images = usage(self.paths.images(), self.store.used_bytes()?);
        let measured = self.usage.clone();
        let written = blocking(move || Ok(measured.writable_layer_bytes())).await?;
        let containers = usage(self.paths.container_records(), written);
        Ok(cri::ImageFsInfoResponse {
            image_filesystems: vec![images],
            container_filesystems: vec![containers],
        })
    }
}

/// Fields of the image configuration, for verbose status.
fn image_info(record: &ImageRecord) -> serde_json::Value {
    let mut rootfs = RootFs::default();
    rootfs.set_diff_ids(record.layers.iter().map(|layer| layer.diff_id.clone()).collect());
    // Not oci-spec's whole document: that has an architecture, which records do not.
    let mut info =
        json!({ "imageSpec": { "os": "linux", "config": record.config.to_oci(), "rootfs": rootfs } });
    // oci-spec writes maps in no order.
    info.sort_all_objects();
    info
}

fn image_of(record: &ImageRecord) -> cri::Image {
    let user = record.config.user.split(':').next().unwrap_or_default();
    let uid = if user.is_empty() { Some(0) } else { user.parse().ok() };
    let annotations = record.imported.then(|| (IMPORTED.to_owned(), "true".to_owned())).into_iter().collect();
    cri::Image {
        id: record.id.clone(),
        repo_tags: record.repo_tags.clone(),
        repo_digests: record.repo_digests.clone(),
        size: record.size,
        uid: uid.map(|value| cri::Int64Value { value }),
        username: if uid.is_some() { String::new() } else { user.to_owned() },
        spec: Some(cri::ImageSpec { image: record.id.clone(), annotations, ..Default::default() }),
        pinned: record.pinned,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn details_are_an_image_config() {
        let config = json!({ "cmd": ["sh"], "volumes": ["/a", "/b"], "labels": { "k": "v" } });
        let layers = json!([{ "diff_id": "sha256:2", "size": 1 }]);
        let record: ImageRecord = serde_json::from_value(
            json!({ "id": "sha256:1", "size": 1, "layers": layers, "config": config }),
        )
        .unwrap();
        let expected = json!({ "imageSpec": {
            "os": "linux",
            "config": { "Entrypoint": [], "Cmd": ["sh"], "Env": [], "User": "", "WorkingDir": "", "StopSignal": "",
                "Labels": { "k": "v" }, "Volumes": { "/a": {}, "/b": {} }, "ExposedPorts": {} },
            "rootfs": { "type": "layers", "diff_ids": ["sha256:2"] },
        }});
        assert_eq!(image_info(&record), expected);
    }

    #[test]
    fn an_image_says_that_it_was_imported() {
        for imported in [false, true] {
            let record: ImageRecord = serde_json::from_value(
                json!({"id": "sha256:1", "size": 1, "imported": imported, "layers": [], "config": {}}),
            )
            .unwrap();
            let spec = image_of(&record).spec.unwrap();
            assert_eq!(spec.annotations.contains_key(IMPORTED), imported);
        }
    }
}
