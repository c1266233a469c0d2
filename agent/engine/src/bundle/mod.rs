//! OCI bundles: the root filesystem, mounts and configuration of a container on disk.

// From a CRI configuration to a bundle.
mod build;
// Inputs of the OCI configuration.
mod facts;
// Mounts of volumes and images.
mod volumes;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::image::ImageStore;
use crate::objects::Objects;
use crate::paths::{Paths, remove_tree};
use crate::rootfs::{self, Rootfs};
use crate::spec::Host;

/// Directories of a bundle in which something is mounted.
const MOUNTS: [&str; 3] = ["images", "mapped/layers", "mapped/mounts"];

/// Creates and removes bundles. All methods block.
pub(crate) struct Bundles {
    pub(crate) objects: Arc<Objects>,
    pub(crate) images: ImageStore,
    pub(crate) paths: Arc<Paths>,
    pub(crate) host: Host,
    /// Directories of CDI spec files.
    pub(crate) cdi_dirs: Vec<PathBuf>,
    /// Directory of seccomp profiles that pods name.
    pub(crate) seccomp_profiles: PathBuf,
}

impl Bundles {
    /// The OCI configuration of a container; null without one.
    pub(crate) fn config(&self, id: &str) -> Value {
        let text = fs::read(self.paths.bundle(id).join("config.json")).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Unmounts and removes the bundle and the root filesystem of a container. Idempotent.
    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        let bundle = self.paths.bundle(id);
        Rootfs::of(&self.paths, id).remove()?;
        for dir in MOUNTS {
            rootfs::unmount_below(&bundle.join(dir))?;
        }
        remove_tree(&bundle)
    }
}
