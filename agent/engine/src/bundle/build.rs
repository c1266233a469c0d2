//! Creates a bundle: root filesystem, mounts and OCI configuration.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use coracle_cli::causes;

use super::Bundles;
use super::volumes::prepare_mounts;
use crate::cdi;
use crate::error::internal;
use crate::image::ImageConfig;
use crate::namespace::{namespace_options, root_of};
use crate::objects::Container;
use crate::paths::private_dir;
use crate::record::{ContainerPhase, SandboxRecord};
use crate::rootfs::Rootfs;
use crate::runtime::{Result, RuntimeError};
use crate::spec::{self, Facts};

impl Bundles {
    /// Creates everything that the OCI runtime needs; sets the phase to `then`.
    pub(crate) fn build(
        &self,
        container: &Container,
        sandbox: &SandboxRecord,
        image: &ImageConfig,
        then: ContainerPhase,
    ) -> Result<()> {
        let record = container.record.lock().clone();
        let labels = self.selinux(&record, sandbox)?;
        let label = labels.as_ref().map(|labels| labels.mount.as_str());
        let rootfs = Rootfs::of(&self.paths, &container.id);
        private_dir(&self.paths.bundle(&container.id)).map_err(internal("bundle"))?;
        rootfs.create().map_err(internal("root filesystem"))?;
        let userns = self.user_namespace(sandbox)?;
        match &userns {
            None => {
                let (upper, work) = (rootfs.upper(), rootfs.work());
                let options = self.images.overlay_options(&record.image_id, &upper, &work)?;
                rootfs.mount(&options, label)
            }
            Some(userns) => {
                let layers = self.images.rootfs_layers(&record.image_id)?;
                let owner = root_of(&namespace_options(&sandbox.config));
                let scratch = self.paths.mapped(&container.id, "layers");
                rootfs.mount_mapped(&layers, userns, owner, &scratch, label)
            }
        }
        .map_err(internal("mounting the root filesystem"))?;
        let facts = Facts { selinux: labels.clone(), ..self.facts(&record, sandbox, image, &rootfs)? };
        let mut config = record.config.clone();
        self.mount_images(container, &mut config)?;
        prepare_mounts(&mut config)?;
        self.relabel_mounts(&config, sandbox, label)?;
        self.map_mounts(container, &mut config, userns.as_ref())?;
        let mut spec = spec::generate(&config, &sandbox.config, image, &facts, &self.host)?;
        let devices = cdi::requested(&config).and_then(|names| spec.inject(&self.cdi_dirs, &names));
        devices.map_err(|error| RuntimeError::InvalidArgument(causes::chain(&error)))?;
        let group = userns.is_some().then(|| root_of(&namespace_options(&sandbox.config)).1);
        self.write(container, spec, group).map_err(internal("container configuration"))?;
        self.objects.change_container(container, |record| {
            record.phase = then;
            record.uid = facts.user.uid;
            record.gid = facts.user.gid;
            record.groups = facts.user.groups;
        })
    }

    /// The configuration has the pod's environment in it: nobody else reads it. `group` is that of the root of a pod's user
    /// namespace, who passes through the bundle to the root filesystem.
    fn write(&self, container: &Container, spec: spec::Config, group: Option<u32>) -> io::Result<()> {
        let text = serde_json::to_vec(&spec.into_json()?)?;
        let bundle = self.paths.bundle(&container.id);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(bundle.join("config.json"))?;
        file.write_all(&text)?;
        if group.is_some() {
            std::os::unix::fs::chown(&bundle, None, group)?;
            fs::set_permissions(bundle, fs::Permissions::from_mode(0o710))?;
        }
        Ok(())
    }
}
