//! Creates a container: from its CRI configuration to a bundle on disk.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_proto::cri;

use super::signal::stop_signal;
use super::volumes::prepare_mounts;
use crate::error::internal;
use crate::image::{ImageConfig, ImageRecord};
use crate::paths::private_dir;
use crate::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use crate::rootfs::Rootfs;
use crate::runtime::{Result, RuntimeError};
use crate::sandbox::{namespace_options, root_of};
use crate::spec::Facts;
use crate::{Container, Engine, new_id, now, spec};

impl Engine {
    pub(crate) async fn create(
        &self,
        sandbox_id: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let sandbox = self.sandbox(sandbox_id)?;
        let sandbox_record = sandbox.record.lock().clone();
        if sandbox_record.phase != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!(
                "sandbox container {sandbox_id:?} is not running"
            )));
        }
        let wanted = config.image.clone().unwrap_or_default().image;
        let image = self.inner.images.get(&wanted)?;
        let container = self.reserve_container(&sandbox_record, config, sandbox_config, &image)?;
        let _verb = container.verb.lock().await;
        // Checks again: a concurrent stop of the sandbox may not have seen this container.
        let built = match sandbox.phase() {
            SandboxPhase::Ready => {
                let container = container.clone();
                self.blocking(move |e| {
                    e.build_container(&container, &sandbox_record, &image.config, ContainerPhase::Created)
                })
                .await
            }
            _ => Err(RuntimeError::FailedPrecondition(format!("sandbox {sandbox_id:?} is being stopped"))),
        };
        if let Err(error) = built {
            if let Err(cleanup) = self.discard_container(&container).await {
                tracing::warn!(container = container.id, error = %cleanup, "failed container not cleaned up, removing its sandbox will retry");
            }
            return Err(error);
        }
        self.emit_container(&container, cri::ContainerEventType::ContainerCreatedEvent);
        Ok(container.id.clone())
    }

    pub(super) fn reserve_container(
        &self,
        sandbox: &SandboxRecord,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
        image: &ImageRecord,
    ) -> Result<Arc<Container>> {
        let meta = config.metadata.clone();
        let meta = meta
            .ok_or_else(|| RuntimeError::InvalidArgument("container config must include metadata".into()))?;
        let id = new_id();
        let parent = sandbox.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let log = match (&*sandbox_config.log_directory, &*config.log_path) {
            ("", _) | (_, "") => PathBuf::new(),
            (dir, path) => Path::new(dir).join(path),
        };
        let record = ContainerRecord {
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            image_id: image.id.clone(),
            image_ref: image.repo_digests.first().unwrap_or(&image.id).clone(),
            created_at: now(),
            cgroup: format!("{parent}/{id}"),
            stop_signal: stop_signal(&config, &image.config.stop_signal),
            log,
            config,
            ..Default::default()
        };
        let container = Container::new(record);
        {
            let mut objects = self.inner.objects.lock();
            let taken = objects.containers.values().find(|c| {
                let record = c.record.lock();
                let same = record.config.metadata.as_ref() == Some(&meta);
                same && record.sandbox == sandbox.id && record.phase != ContainerPhase::Removing
            });
            if let Some(taken) = taken {
                return Err(RuntimeError::AlreadyExists(format!(
                    "failed to reserve container name \"{}_{}\": name is reserved for {:?}",
                    meta.name, meta.attempt, taken.id
                )));
            }
            objects.containers.insert(id.clone(), container.clone());
        }
        let written = self.change_container(&container, |_| ());
        let held = written.and_then(|()| Ok(self.inner.images.hold(&image.id, &id)?));
        if let Err(error) = held {
            self.inner.objects.lock().containers.remove(&id);
            let _ = self.inner.container_records.remove(&id);
            return Err(error);
        }
        Ok(container)
    }

    pub(crate) fn rootfs(&self, id: &str) -> Rootfs {
        Rootfs { mount: self.inner.paths.rootfs(id), layer: self.inner.paths.layer(id) }
    }

    /// Creates everything that the OCI runtime needs; sets the phase to `then`.
    pub(super) fn build_container(
        &self,
        container: &Container,
        sandbox: &SandboxRecord,
        image: &ImageConfig,
        then: ContainerPhase,
    ) -> Result<()> {
        let record = container.record.lock().clone();
        let labels = self.selinux(&record, sandbox)?;
        let label = labels.as_ref().map(|labels| labels.mount.as_str());
        let rootfs = self.rootfs(&container.id);
        private_dir(&self.inner.paths.bundle(&container.id)).map_err(internal("bundle"))?;
        rootfs.create().map_err(internal("root filesystem"))?;
        let userns = self.user_namespace(sandbox)?;
        match &userns {
            None => {
                let (upper, work) = (rootfs.upper(), rootfs.work());
                let options = self.inner.images.overlay_options(&record.image_id, &upper, &work)?;
                rootfs.mount(&options, label)
            }
            Some(userns) => {
                let layers = self.inner.images.rootfs_layers(&record.image_id)?;
                let owner = root_of(&namespace_options(&sandbox.config));
                let scratch = self.inner.paths.mapped(&container.id, "layers");
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
        let spec = spec::generate(&config, &sandbox.config, image, &facts, &self.inner.host)?;
        let group = userns.is_some().then(|| root_of(&namespace_options(&sandbox.config)).1);
        self.write_bundle(container, &spec, group).map_err(internal("container configuration"))?;
        self.change_container(container, |record| {
            record.phase = then;
            record.uid = facts.user.uid;
            record.gid = facts.user.gid;
            record.groups = facts.user.groups;
        })
    }

    /// The configuration has the pod's environment in it: nobody else reads it. `group` is that of the root of a pod's user
    /// namespace, who passes through the bundle to the root filesystem.
    fn write_bundle(
        &self,
        container: &Container,
        spec: &serde_json::Value,
        group: Option<u32>,
    ) -> io::Result<()> {
        let bundle = self.inner.paths.bundle(&container.id);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(bundle.join("config.json"))?;
        file.write_all(spec.to_string().as_bytes())?;
        if group.is_some() {
            std::os::unix::fs::chown(&bundle, None, group)?;
            fs::set_permissions(bundle, fs::Permissions::from_mode(0o710))?;
        }
        Ok(())
    }
}
