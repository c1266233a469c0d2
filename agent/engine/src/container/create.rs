//! Creates a container: from its CRI configuration to a bundle on disk.

use coracle_cli::causes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_proto::cri;
use coracle_trace::{Stage, tracked};

use super::Containers;
use crate::image::ImageRecord;
use crate::objects::Container;
use crate::offload::blocking;
use crate::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use crate::runtime::{Result, RuntimeError};
use crate::signal::stop_signal;
use crate::stamp::{new_id, now};

impl Containers {
    /// Prepares a container without running it; returns its id.
    pub(crate) async fn create(
        &self,
        sandbox_id: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let sandbox = self.objects.sandbox(sandbox_id)?;
        let sandbox_record = sandbox.record.lock().clone();
        if sandbox_record.phase != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!(
                "sandbox container {sandbox_id:?} is not running"
            )));
        }
        let wanted = config.image.clone().unwrap_or_default().image;
        let image = self.images.get(&wanted)?;
        let container = self.reserve(&sandbox_record, config, sandbox_config, &image)?;
        let _verb = container.verb.lock().await;
        // Checks again: a concurrent stop of the sandbox may not have seen this container.
        let built = match sandbox.phase() {
            SandboxPhase::Ready => {
                let (building, bundles) = (container.clone(), self.bundles.clone());
                let build = blocking(move || {
                    bundles.build(&building, &sandbox_record, &image.config, ContainerPhase::Created)
                });
                tracked(Stage::OciBundle, &container.name(), build).await
            }
            _ => Err(RuntimeError::FailedPrecondition(format!("sandbox {sandbox_id:?} is being stopped"))),
        };
        if let Err(error) = built {
            if let Err(cleanup) = self.discard(&container).await {
                tracing::warn!(container = container.id, error = %causes::chain(&cleanup), "failed container not cleaned up, removing its sandbox will retry");
            }
            return Err(error);
        }
        self.events.emit_container(&container, cri::ContainerEventType::ContainerCreatedEvent);
        Ok(container.id.clone())
    }

    /// Adds a container that is being created; it holds its image from now on.
    pub(super) fn reserve(
        &self,
        sandbox: &SandboxRecord,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
        image: &ImageRecord,
    ) -> Result<Arc<Container>> {
        if config.metadata.is_none() {
            return Err(RuntimeError::InvalidArgument("container config must include metadata".into()));
        }
        let id = new_id();
        let parent = sandbox.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
        let log = match (&*sandbox_config.log_directory, &*config.log_path) {
            ("", _) | (_, "") => PathBuf::new(),
            (dir, path) => Path::new(dir).join(path),
        };
        let container = self.objects.add_container(ContainerRecord {
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
        })?;
        if let Err(error) = self.images.hold(&image.id, &id) {
            self.objects.withdraw_container(&id);
            return Err(error.into());
        }
        Ok(container)
    }
}
