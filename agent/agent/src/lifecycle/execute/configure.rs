//! Step 5: the configuration of a container: environment, mounts and managed files.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, FileKeySelector, PodSpec};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::job::Job;
use crate::claims::ClaimError;
use crate::devices::AllocateError;
use crate::events::{Kind, pod_reference};
use crate::image::{ImageRequest, Present, PullFailure};
use crate::objects::ObjectError;
use crate::pod::container_config::{ContainerFacts, container_config};
use crate::pod::downward::Downward;
use crate::pod::env::{self, EnvError, Sources};
use crate::pod::plan::Start;
use crate::pod::pull_secret::PullCredential;
use crate::pod::security::{self, SecurityError};
use crate::pod::spec::{self, Role};
use crate::pod::users::{self, UsersError};
use crate::pod::{dns, pull_secret};
use crate::volume::mounts::{self, MountError, Source};
use crate::volume::prepare::Prepared;
use coracle_host_dir::HostDir;

/// Why a container cannot be configured; shown on the pod as `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error)]
pub(in crate::lifecycle) enum ConfigureError {
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Env(#[from] EnvError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error(transparent)]
    Devices(#[from] AllocateError),
    #[error(transparent)]
    Claims(#[from] ClaimError),
    /// An image that is a volume is not on the node.
    #[error("{}: {}", .0.reason, .0.message)]
    ImageVolume(PullFailure),
    #[error("cannot find the volume {volume:?} referenced by fileKeyRef")]
    NoEnvVolume { volume: String },
    #[error("the volume {volume:?} referenced by fileKeyRef is not an emptyDir")]
    NotEmptyDir { volume: String },
    #[error("failed to read {path:?} of volume {volume:?}, referenced by fileKeyRef: {source}")]
    EnvFile { volume: String, path: String, source: io::Error },
    #[error("failed to write {path}: {source}")]
    HostsFile { path: PathBuf, source: io::Error },
    #[error("failed to create {path}: {source}")]
    TerminationLog { path: PathBuf, source: io::Error },
}

impl Job {
    /// 5: the configuration of a container.
    pub(in crate::lifecycle) async fn configure(
        &self,
        role: Role,
        container: &Container,
        start: &Start,
        present: Present,
        prepared: Option<&Prepared>,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<cri::ContainerConfig, ConfigureError> {
        let (resources, pod) = (&self.executor.resources, &self.pod);
        security::verify_non_root(pod, container, &present.user)?;
        let env = self.environment(container, prepared).await?;
        let mounts = self.mounts(container, start, &env, prepared, sandbox_config).await?;
        let none = HashMap::new();
        let devices = mounts::devices(container, prepared.map_or(&none, |prepared| &prepared.sources))?;
        let plugin_devices = self.executor.devices.run_options(pod, container).await?;
        let target = self.target(role, &start.name);
        let node_memory = resources.memory();
        let claimed = self.executor.claims.cdi_devices(pod, container)?;
        let mut config = container_config(
            pod,
            container,
            start,
            ContainerFacts {
                image: present.spec,
                image_user: &present.user,
                env: &env,
                mounts,
                devices,
                node_memory,
                cpu_quotas: resources.cpu_quotas(spec::uid(pod), &start.name),
                page_sizes: resources.page_sizes(),
                seccomp_default: self.executor.config.seccomp_default,
                stop_signals: self.executor.config.gates.container_stop_signals,
                target: target.as_deref(),
                cpuset: resources.cpuset(spec::uid(pod), &start.name).unwrap_or_default(),
                memory_nodes: resources.memory_nodes(spec::uid(pod), &start.name),
                userns: self.users()?,
            },
        );
        plugin_devices.apply(&mut config);
        config.cdi_devices.extend(claimed.into_iter().map(|name| cri::CdiDevice { name }));
        if let Some(limits) = config.linux.as_mut().and_then(|linux| linux.resources.as_mut()) {
            resources.keep_supported(limits);
        }
        Ok(config)
    }

    pub(in crate::lifecycle) async fn credentials(&self, image: &str) -> Vec<PullCredential> {
        let (uid, namespace) = (spec::uid(&self.pod), spec::namespace(&self.pod));
        let (mut secrets, mut missing) = (Vec::new(), Vec::new());
        for reference in spec::spec(&self.pod).image_pull_secrets.iter().flatten() {
            match self.executor.objects.secret(uid, namespace, &reference.name).await {
                Ok(Some(secret)) => secrets.push(secret),
                _ => missing.push(reference.name.clone()),
            }
        }
        if !missing.is_empty() {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.executor.events.pod(&self.pod, Kind::Warning, "FailedToRetrieveImagePullSecret", text);
        }
        let secrets: Vec<_> = secrets.iter().map(|secret| &**secret).collect();
        pull_secret::credentials(image, &secrets)
    }

    async fn environment(
        &self,
        container: &Container,
        prepared: Option<&Prepared>,
    ) -> Result<BTreeMap<String, String>, ConfigureError> {
        let (executor, uid, namespace) = (&self.executor, spec::uid(&self.pod), spec::namespace(&self.pod));
        let (maps, secrets) = env::references(container);
        let mut sources = Sources::default();
        for name in maps {
            let found = executor.objects.config_map(uid, namespace, &name).await?;
            sources.config_maps.extend(found.map(|object| (name, object)));
        }
        for name in secrets {
            let found = executor.objects.secret(uid, namespace, &name).await?;
            sources.secrets.extend(found.map(|object| (name, object)));
        }
        for reference in env::files(container) {
            only_empty_dir(&spec::spec(&self.pod), &reference.volume_name)?;
            let text = tokio::task::block_in_place(|| read_env_file(reference, prepared))?;
            sources.files.insert((reference.volume_name.clone(), reference.path.clone()), text);
        }
        let links = spec::spec(&self.pod).enable_service_links != Some(false);
        let services = executor.network.service_variables(namespace, links).await;
        let allocatable = executor.resources.allocatable();
        let ips = self.ips();
        let facts = Downward { pod_ips: &ips, host_ips: &executor.config.ips, allocatable: &allocatable };
        Ok(env::environment(&self.pod, container, &sources, &services, &facts)?)
    }

    async fn mounts(
        &self,
        container: &Container,
        start: &Start,
        env: &BTreeMap<String, String>,
        prepared: Option<&Prepared>,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<Vec<cri::Mount>, ConfigureError> {
        let (config, pod, uid) = (&self.executor.config, &self.pod, spec::uid(&self.pod));
        let mut sources = prepared.map(|prepared| prepared.sources.clone()).unwrap_or_default();
        self.image_volumes(&mut sources, container, sandbox_config).await?;
        let mut all = mounts::mounts(config, pod, container, &sources, env)?;
        let own = |path: &str| {
            container
                .volume_mounts
                .iter()
                .flatten()
                .any(|mount| mount.mount_path.trim_end_matches('/') == path)
        };
        let plain = |inside: &str, host: &Path| cri::Mount {
            container_path: inside.to_owned(),
            host_path: host.to_string_lossy().into_owned(),
            // The pod's own files, as its volumes are.
            selinux_relabel: true,
            ..cri::Mount::default()
        };
        if !own("/etc/hosts") {
            all.push(plain("/etc/hosts", &self.hosts_file()?));
        }
        let message = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        if !message.is_empty() {
            let file = config.termination_log(uid, &start.name, start.attempt);
            make_public_file(&file)
                .map_err(|source| ConfigureError::TerminationLog { path: file.clone(), source })?;
            all.push(plain(message, &file));
        }
        if let Some(users) = self.users()? {
            users::map_mounts(&mut all, &users);
        }
        Ok(all)
    }

    /// Images that are volumes are pulled like containers' own.
    async fn image_volumes(
        &self,
        sources: &mut HashMap<String, Source>,
        container: &Container,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<(), ConfigureError> {
        let spec = spec::spec(&self.pod);
        for volume in spec.volumes.iter().flatten().filter(|volume| volume.image.is_some()) {
            if !container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name) {
                continue;
            }
            let Some(source) = &volume.image else { continue };
            let image = source.reference.as_deref().unwrap_or_default();
            let credentials = self.credentials(image).await;
            let about = pod_reference(&self.pod, None);
            let request = ImageRequest {
                pod: &self.pod,
                about: &about,
                image,
                policy: source.pull_policy.as_deref(),
                credentials: &credentials,
                sandbox: sandbox_config,
            };
            let present = self.executor.images.ensure(request).await;
            let present = present.map_err(ConfigureError::ImageVolume)?;
            sources.insert(volume.name.clone(), Source::Image(present.spec));
        }
        Ok(())
    }

    pub(in crate::lifecycle) fn hosts_file(&self) -> Result<PathBuf, ConfigureError> {
        let config = &self.executor.config;
        let (name, domain) = dns::hostname(&self.pod, &config.cluster.domain, &config.name);
        let host = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let text = dns::hosts_file(&self.pod, &self.ips(), &name, &domain, &host);
        let path = config.pod_dir(spec::uid(&self.pod)).join("etc-hosts");
        // Written in place: running containers see the file through their mounts.
        HostDir::create(&config.pod_dir(spec::uid(&self.pod)))
            .and_then(|dir| dir.rewrite("etc-hosts", text.as_bytes(), 0o644))
            .map_err(|source| ConfigureError::HostsFile { path: path.clone(), source })?;
        Ok(path)
    }

    /// The container whose processes an ephemeral container joins.
    fn target(&self, role: Role, name: &str) -> Option<String> {
        if role != Role::Ephemeral {
            return None;
        }
        let spec: Cow<'_, _> = spec::spec(&self.pod);
        let of = spec.ephemeral_containers.iter().flatten().find(|container| container.name == name)?;
        let target = of.target_container_name.as_deref().filter(|target| !target.is_empty())?;
        self.observed.latest(target).map(|instance| instance.id.clone())
    }
}

/// Largest file of environment variables.
const MAX_ENV_FILE: u64 = 1 << 20;

/// Variables come from files of the pod itself: the agent could read any file of the host for it.
fn only_empty_dir(spec: &PodSpec, volume: &str) -> Result<(), ConfigureError> {
    let found = spec.volumes.iter().flatten().find(|one| one.name == volume);
    match found {
        Some(found) if found.empty_dir.is_none() => {
            Err(ConfigureError::NotEmptyDir { volume: volume.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The text of a file of variables. It is in a volume that containers of the pod write: links are not followed.
fn read_env_file(reference: &FileKeySelector, prepared: Option<&Prepared>) -> Result<String, ConfigureError> {
    let (volume, path) = (reference.volume_name.clone(), reference.path.clone());
    let source = prepared.and_then(|prepared| prepared.sources.get(&volume));
    let Some(Source::Path { path: dir, .. }) = source else {
        return Err(ConfigureError::NoEnvVolume { volume });
    };
    let read = || -> io::Result<String> {
        let file = HostDir::open(dir)?.open_file_below(Path::new(&path))?;
        let mut text = String::new();
        file.take(MAX_ENV_FILE + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_ENV_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(text)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && reference.optional == Some(true) => {
            Ok(String::new())
        }
        read => read.map_err(|source| ConfigureError::EnvFile { volume, path, source }),
    }
}

/// Creates the termination message file, writable by any user of the container.
fn make_public_file(path: &Path) -> io::Result<()> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    HostDir::create(parent)?.rewrite(name, b"", 0o666)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn files_of_variables_are_in_empty_dirs() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]}))
        .unwrap();
        assert!(only_empty_dir(&spec, "v").is_ok());
        assert_eq!(
            only_empty_dir(&spec, "h").unwrap_err().to_string(),
            "the volume \"h\" referenced by fileKeyRef is not an emptyDir"
        );
    }
}
