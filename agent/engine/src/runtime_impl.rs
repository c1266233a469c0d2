//! Implements [`Runtime`] for the engine.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::{causes, cri};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;
use tokio_stream::wrappers::BroadcastStream;

use super::cni;
use super::error::internal;
use super::image::{Credentials, ImageRecord};
use super::{Engine, now};
use crate::runtime::{
    ASK_REGISTRY, Duplex, FirstContainer, IMPORTED, Result, Runtime, RuntimeError, Session,
};
use coracle_keeper::wire::Call;

/// Fields of the image configuration, for verbose status.
fn image_info(record: &ImageRecord) -> serde_json::Value {
    let config = &record.config;
    let set = |names: &[String]| -> serde_json::Map<String, serde_json::Value> {
        names.iter().map(|name| (name.clone(), json!({}))).collect()
    };
    json!({ "imageSpec": {
        "os": "linux",
        "config": {
            "Entrypoint": config.entrypoint, "Cmd": config.cmd, "Env": config.env, "User": config.user,
            "WorkingDir": config.working_dir, "StopSignal": config.stop_signal, "Labels": config.labels,
            "Volumes": set(&config.volumes), "ExposedPorts": set(&config.exposed_ports),
        },
        "rootfs": { "type": "layers", "diff_ids": record.layers.iter().map(|l| &l.diff_id).collect::<Vec<_>>() },
    }})
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

impl Engine {
    /// Runs an operation in a task of its own, so that it completes even if the caller is cancelled.
    async fn run_to_completion<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        verb: impl FnOnce(Self) -> F,
    ) -> Result<T> {
        tokio::spawn(verb(self.clone())).await.map_err(internal("engine"))?
    }

    fn conditions(&self, network: cni::Result<()>) -> Vec<cri::RuntimeCondition> {
        let missing = self.missing_controllers();
        let mut conditions = vec![
            cri::RuntimeCondition { r#type: "RuntimeReady".into(), status: true, ..Default::default() },
            cri::RuntimeCondition { r#type: "NetworkReady".into(), status: true, ..Default::default() },
        ];
        if let Err(error) = network {
            let message = format!("Network plugin returns error: {}", causes::chain(&error));
            conditions[1] = cri::RuntimeCondition {
                r#type: "NetworkReady".into(),
                status: false,
                reason: "NetworkPluginNotReady".into(),
                message,
            };
        }
        if !missing.is_empty() {
            conditions.push(cri::RuntimeCondition {
                r#type: "ResourceLimitsEnforced".into(),
                status: false,
                reason: "CgroupControllersMissing".into(),
                message: format!(
                    "no cgroup v2 controllers {}: their limits are not enforced",
                    missing.join(", ")
                ),
            });
        }
        conditions
    }
}

#[async_trait]
impl Runtime for Engine {
    async fn version(&self) -> Result<cri::VersionResponse> {
        Ok(cri::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "coracle".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse> {
        let network = self.inner.network.status().await;
        let mut info = HashMap::new();
        if verbose {
            let options = &self.inner.options;
            let config = json!({
                "root": options.root, "run": options.run, "runtime": options.runtime,
                "cgroupControllers": self.inner.hierarchy.controllers(),
                "missingControllers": self.missing_controllers(),
                "cniConfDir": options.cni.conf, "cniBinDirs": options.cni.bin,
            });
            info.insert("config".to_owned(), config.to_string());
        }
        let features = cri::RuntimeHandlerFeatures {
            recursive_read_only_mounts: super::host::kernel_at_least(5, 12),
            // Layers are idmapped, which overlayfs supports since this version.
            user_namespaces: super::host::kernel_at_least(5, 19),
        };
        let handler = |name: String| cri::RuntimeHandler { name, features: Some(features) };
        Ok(cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions: self.conditions(network) }),
            info,
            runtime_handlers: vec![handler(String::new()), handler(self.handler_name())],
            features: Some(cri::RuntimeFeatures { supplemental_groups_policy: true }),
        })
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        // The agent writes the CNI configuration and knows the range.
        tracing::debug!(pod_cidr, "runtime configuration");
        Ok(())
    }

    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String> {
        let handler = handler.to_owned();
        let made =
            self.run_to_completion(|engine| async move { engine.run_sandbox(config, &handler, None).await });
        Ok(made.await?.0)
    }

    fn can_precreate(&self) -> bool {
        self.inner.waits_at_fifo.get() == Some(&true)
    }

    async fn run_pod_sandbox_precreating(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: FirstContainer,
    ) -> Result<(String, Option<String>)> {
        let handler = handler.to_owned();
        self.run_to_completion(
            |engine| async move { engine.run_sandbox(config, &handler, Some(first)).await },
        )
        .await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.run_to_completion(|engine| async move { engine.stop_sandbox(&id).await }).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.run_to_completion(|engine| async move { engine.remove_sandbox(&id).await }).await
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        Ok(self.sandbox_status_of(&*self.sandbox(id)?, verbose))
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>> {
        let filter = filter.unwrap_or_default();
        let objects = self.inner.objects.lock();
        Ok(objects.sandboxes.values().filter(|s| s.matches(&filter)).map(|s| s.listed()).collect())
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        _overhead: Option<cri::LinuxContainerResources>,
        _resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()> {
        // Only a notification: the caller has changed the pod's cgroup already.
        self.sandbox(id).map(drop)
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        let sandbox = sandbox.to_owned();
        self.run_to_completion(|engine| async move { engine.create(&sandbox, config, sandbox_config).await })
            .await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.run_to_completion(|engine| async move { engine.start(&id).await }).await
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        self.stop(id, grace).await
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.run_to_completion(|engine| async move { engine.remove(&id).await }).await
    }

    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>> {
        let filter = filter.unwrap_or_default();
        let objects = self.inner.objects.lock();
        Ok(objects.containers.values().filter(|c| c.matches(&filter)).map(|c| c.listed()).collect())
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        let container = self.container(id)?;
        let config = self.inner.paths.bundle(&container.id).join("config.json");
        let spec = verbose.then(|| std::fs::read(config).ok()).flatten();
        let spec = spec.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Ok(container.status(verbose, spec))
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()> {
        self.update_resources(id, resources).await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let container = self.container(id)?;
        if !container.is_live() {
            return Err(RuntimeError::FailedPrecondition("container is not running".into()));
        }
        Ok(self.inner.keeper.call_ok(Call::Reopen { id: container.id.clone() }, &[]).await?)
    }

    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        self.checkpoint(id, to, timeout).await
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        self.run_exec_sync(id, command, timeout).await
    }

    async fn exec(&self, request: cri::ExecRequest) -> Result<Session> {
        self.open_exec(request).await
    }

    async fn attach(&self, request: cri::AttachRequest) -> Result<Session> {
        self.open_attach(request).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>> {
        self.connect_port(sandbox, port).await
    }

    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats> {
        let container = self.container(id)?;
        self.blocking(move |engine| engine.stats_of(&container, true)).await
    }

    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>> {
        let filter = filter.unwrap_or_default();
        let filter = cri::ContainerFilter {
            id: filter.id,
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
            state: Some(cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() }),
        };
        let containers: Vec<_> = {
            let objects = self.inner.objects.lock();
            objects.containers.values().filter(|c| c.matches(&filter)).cloned().collect()
        };
        self.blocking(move |engine| containers.iter().map(|c| engine.stats_of(c, true)).collect()).await
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats> {
        let sandbox = self.sandbox(id)?;
        self.blocking(move |engine| engine.sandbox_stats_of(&sandbox)).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>> {
        let filter = filter.unwrap_or_default();
        let filter = cri::PodSandboxFilter {
            id: filter.id,
            label_selector: filter.label_selector,
            state: Some(cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady.into() }),
        };
        let sandboxes: Vec<_> = {
            let objects = self.inner.objects.lock();
            objects.sandboxes.values().filter(|s| s.matches(&filter)).cloned().collect()
        };
        self.blocking(move |engine| {
            engine.drop_stale_samples();
            // A sandbox that is being removed must not fail the list.
            Ok(sandboxes.iter().filter_map(|sandbox| engine.sandbox_stats_of(sandbox).ok()).collect())
        })
        .await
    }

    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>> {
        // A lagging subscriber continues with the next event: it has to read the state anyway.
        Ok(BroadcastStream::new(self.inner.events.subscribe())
            .filter_map(async |event| event.ok().map(Arc::unwrap_or_clone))
            .boxed())
    }

    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        _sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String> {
        // Imported images are used as they are; the node may have no network.
        let asks = image.annotations.contains_key(ASK_REGISTRY);
        if let Some(record) = self.inner.images.find(&image.image)?.filter(|record| record.imported && !asks)
        {
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
        Ok(self.inner.images.pull(&image.image, &credentials, &self.inner.hosts, None).await?.id)
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        match filter.filter(|spec| !spec.image.is_empty()) {
            Some(spec) => Ok(self.inner.images.find(&spec.image)?.iter().map(image_of).collect()),
            None => Ok(self.inner.images.list()?.iter().map(image_of).collect()),
        }
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        Ok(self.inner.images.find(&image.image)?.as_ref().map(image_of))
    }

    async fn image_details(&self, image: cri::ImageSpec) -> Result<serde_json::Value> {
        let Some(record) = self.inner.images.find(&image.image)? else { return Ok(serde_json::Value::Null) };
        Ok(image_info(&record))
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        Ok(self.inner.images.remove(&image.image)?)
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        let usage = |path: std::path::PathBuf, bytes: u64| cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: path.display().to_string() }),
            used_bytes: Some(cri::UInt64Value { value: bytes }),
            inodes_used: None,
        };
        let images = usage(self.inner.paths.images(), self.inner.images.used_bytes()?);
        let written = self.blocking(|engine| Ok(engine.writable_layer_bytes())).await?;
        let containers = usage(self.inner.paths.container_records(), written);
        Ok(cri::ImageFsInfoResponse {
            image_filesystems: vec![images],
            container_filesystems: vec![containers],
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
