//! Mounts of volumes and images into a container, idmapped for pods with a user namespace.

use std::fs::{self, File};
use std::path::Path;

use coracle_proto::cri;

use super::Bundles;
use crate::error::internal;
use crate::objects::Container;
use crate::record::SandboxRecord;
use crate::relabel::relabel;
use crate::runtime::{Result, RuntimeError};
use crate::{idmap, rootfs};

impl Bundles {
    /// Mounts that the pod wants with its own ids, in a directory of the bundle, so that every OCI runtime can.
    pub(super) fn map_mounts(
        &self,
        container: &Container,
        config: &mut cri::ContainerConfig,
        userns: Option<&File>,
    ) -> Result<()> {
        for (number, mount) in config.mounts.iter_mut().enumerate() {
            if mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty() {
                continue;
            }
            let userns = userns.ok_or_else(|| {
                let text = format!("mount {:?} has id mappings, its pod none", mount.container_path);
                RuntimeError::InvalidArgument(text)
            })?;
            let at = self.paths.mapped(&container.id, "mounts").join(number.to_string());
            idmap::mount(Path::new(&mount.host_path), &at, userns).map_err(|e| {
                let text = format!("mapping the ids of {:?}: {e}", mount.host_path);
                RuntimeError::Internal(text)
            })?;
            mount.host_path = at.display().to_string();
        }
        Ok(())
    }

    /// Gives the container's SELinux label to files of the pod's sandbox, and to volumes that are to have it.
    pub(super) fn relabel_mounts(
        &self,
        config: &cri::ContainerConfig,
        sandbox: &SandboxRecord,
        label: Option<&str>,
    ) -> Result<()> {
        let Some(label) = label else { return Ok(()) };
        let dir = self.paths.sandbox(&sandbox.id);
        let own = ["hostname", "hosts", "resolv.conf", "shm"].map(|file| dir.join(file));
        let volumes = config.mounts.iter().filter(|mount| mount.selinux_relabel);
        for path in
            own.into_iter().filter(|path| path.exists()).chain(volumes.map(|m| m.host_path.clone().into()))
        {
            relabel(&path, label)
                .map_err(|e| RuntimeError::Internal(format!("relabeling {:?}: {e}", path.display())))?;
        }
        Ok(())
    }

    /// Mounts of images: their layers, read-only, in a directory of the bundle.
    pub(super) fn mount_images(
        &self,
        container: &Container,
        config: &mut cri::ContainerConfig,
    ) -> Result<()> {
        for (number, mount) in config.mounts.iter_mut().enumerate() {
            let Some(wanted) = mount.image.as_ref().map(|i| i.image.clone()).filter(|i| !i.is_empty()) else {
                continue;
            };
            let image = self.images.get(&wanted)?;
            self.objects.change_container(container, |record| record.volume_images.push(image.id.clone()))?;
            self.images.hold(&image.id, &container.id)?;
            let layers = self.images.rootfs_layers(&image.id)?;
            let at = self.paths.image_mount(&container.id, number);
            rootfs::mount_layers(&layers, &at).map_err(internal("mounting an image"))?;
            let source = rootfs::inside(&at, &mount.image_sub_path).ok_or_else(|| {
                RuntimeError::InvalidArgument(format!(
                    "image {wanted:?} has no directory {:?}",
                    mount.image_sub_path
                ))
            })?;
            mount.host_path = source.display().to_string();
            mount.readonly = true;
        }
        Ok(())
    }
}

/// Sources are resolved and, as other runtimes do, created as directories where nothing is.
pub(super) fn prepare_mounts(config: &mut cri::ContainerConfig) -> Result<()> {
    for mount in &mut config.mounts {
        let source = Path::new(&mount.host_path);
        if !source.is_absolute() {
            return Err(RuntimeError::InvalidArgument(format!(
                "mount source {:?} is not an absolute path",
                mount.host_path
            )));
        }
        let failed = |e| RuntimeError::Internal(format!("failed to mkdir {:?}: {e}", mount.host_path));
        if !source.exists() {
            fs::create_dir_all(source).map_err(failed)?;
        }
        let resolved = fs::canonicalize(source).map_err(failed)?;
        mount.host_path = resolved.display().to_string();
    }
    Ok(())
}
