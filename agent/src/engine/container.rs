//! Containers: create, start, stop, remove.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri::{self, NamespaceMode};

use super::error::internal;
use super::image::{ImageConfig, ImageRecord};
use super::paths::{private_dir, remove_tree};
use super::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use super::rootfs::{self, Rootfs};
use super::sandbox::{is_host, namespace_options, root_of, user_maps};
use super::spec::{self, Facts, Namespaces, devices};
use super::user::Accounts;
use super::{Container, Engine, idmap, limits, new_id, now, user};
use crate::keeper::pidfd;
use crate::keeper::wire::{Call, LaunchSpec};
use crate::runtime::{Result, RuntimeError};

/// An OCI runtime that takes longer is killed.
const LAUNCH_PATIENCE: Duration = Duration::from_secs(120);
/// What is killed must be gone by then.
const KILL_PATIENCE: Duration = Duration::from_secs(30);
/// Exit code of a container that could not be started.
const START_FAILED: i32 = 128;

impl Engine {
    pub(super) async fn create(
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
        // A sandbox that is being stopped has not seen this container.
        let built = match sandbox.phase() {
            SandboxPhase::Ready => {
                let container = container.clone();
                self.blocking(move |e| e.build_container(&container, &sandbox_record, &image.config)).await
            }
            _ => Err(RuntimeError::FailedPrecondition(format!("sandbox {sandbox_id:?} is being stopped"))),
        };
        if let Err(error) = built {
            if let Err(cleanup) = self.discard_container(&container).await {
                tracing::warn!(container = container.id, error = %cleanup, "cleaning up a failed container; removing its sandbox tries again");
            }
            return Err(error);
        }
        self.emit_container(&container, cri::ContainerEventType::ContainerCreatedEvent);
        Ok(container.id.clone())
    }

    fn reserve_container(
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

    pub(super) fn rootfs(&self, id: &str) -> Rootfs {
        Rootfs { mount: self.inner.paths.rootfs(id), layer: self.inner.paths.layer(id) }
    }

    fn build_container(
        &self,
        container: &Container,
        sandbox: &SandboxRecord,
        image: &ImageConfig,
    ) -> Result<()> {
        let record = container.record.lock().clone();
        let rootfs = self.rootfs(&container.id);
        private_dir(&self.inner.paths.bundle(&container.id)).map_err(internal("bundle"))?;
        rootfs.create().map_err(internal("root filesystem"))?;
        let userns = self.user_namespace(sandbox)?;
        match &userns {
            None => {
                let (upper, work) = (rootfs.upper(), rootfs.work());
                let options = self.inner.images.overlay_options(&record.image_id, &upper, &work)?;
                rootfs.mount(&options)
            }
            Some(userns) => {
                let layers = self.inner.images.rootfs_layers(&record.image_id)?;
                let owner = root_of(&namespace_options(&sandbox.config));
                let scratch = self.inner.paths.mapped(&container.id, "layers");
                rootfs.mount_mapped(&layers, userns, owner, &scratch)
            }
        }
        .map_err(internal("mounting the root filesystem"))?;
        let facts = self.facts(&record, sandbox, image, &rootfs)?;
        let mut config = record.config.clone();
        self.mount_images(container, &mut config)?;
        prepare_mounts(&mut config)?;
        self.map_mounts(container, &mut config, userns.as_ref())?;
        let spec = spec::generate(&config, &sandbox.config, image, &facts, &self.inner.host)?;
        self.write_bundle(container, &spec, userns.is_some()).map_err(internal("container configuration"))?;
        self.change_container(container, |record| {
            record.phase = ContainerPhase::Created;
            record.uid = facts.user.uid;
            record.gid = facts.user.gid;
            record.groups = facts.user.groups;
        })
    }

    /// The configuration has the pod's environment in it: nobody else reads it.
    fn write_bundle(&self, container: &Container, spec: &serde_json::Value, mapped: bool) -> io::Result<()> {
        let bundle = self.inner.paths.bundle(&container.id);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(bundle.join("config.json"))?;
        file.write_all(spec.to_string().as_bytes())?;
        if mapped {
            fs::set_permissions(bundle, fs::Permissions::from_mode(0o711))?;
        }
        Ok(())
    }

    /// The pod's user namespace, when it has one.
    fn user_namespace(&self, sandbox: &SandboxRecord) -> Result<Option<File>> {
        if user_maps(&namespace_options(&sandbox.config)).is_none() {
            return Ok(None);
        }
        let path = self.inner.paths.namespace(&sandbox.id, "user");
        File::open(&path).map(Some).map_err(internal("user namespace"))
    }

    /// Mounts that the pod wants with its own ids, in a directory of the bundle, so that every OCI runtime can.
    fn map_mounts(
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
            let at = self.inner.paths.mapped(&container.id, "mounts").join(number.to_string());
            idmap::mount(Path::new(&mount.host_path), &at, userns).map_err(|e| {
                let text = format!("mapping the ids of {:?}: {e}", mount.host_path);
                RuntimeError::Internal(text)
            })?;
            mount.host_path = at.display().to_string();
        }
        Ok(())
    }

    /// Mounts of images: their layers, read-only, in a directory of the bundle.
    fn mount_images(&self, container: &Container, config: &mut cri::ContainerConfig) -> Result<()> {
        for (number, mount) in config.mounts.iter_mut().enumerate() {
            let Some(wanted) = mount.image.as_ref().map(|i| i.image.clone()).filter(|i| !i.is_empty()) else {
                continue;
            };
            let image = self.inner.images.get(&wanted)?;
            self.change_container(container, |record| record.volume_images.push(image.id.clone()))?;
            self.inner.images.hold(&image.id, &container.id)?;
            let layers = self.inner.images.rootfs_layers(&image.id)?;
            let at = self.inner.paths.image_mount(&container.id, number);
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

    fn facts(
        &self,
        record: &ContainerRecord,
        sandbox: &SandboxRecord,
        image: &ImageConfig,
        rootfs: &Rootfs,
    ) -> Result<Facts> {
        let linux = record.config.linux.clone().unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        let mut volumes = BTreeMap::new();
        for (number, destination) in image.volumes.iter().enumerate() {
            let owner = root_of(&namespace_options(&sandbox.config));
            let dir = rootfs.volume(number, destination, owner).map_err(internal("image volume"))?;
            volumes.insert(destination.clone(), dir);
        }
        let devices =
            if security.privileged { devices::all() } else { devices::requested(&record.config.devices) };
        let devices = devices.map_err(|e| RuntimeError::InvalidArgument(e.to_string()))?;
        let dir = self.inner.paths.sandbox(&sandbox.id);
        let hostname = fs::read_to_string(dir.join("hostname")).unwrap_or_default().trim().to_owned();
        Ok(Facts {
            id: record.id.clone(),
            sandbox: sandbox.id.clone(),
            hostname,
            sandbox_dir: dir,
            cgroup: record.cgroup.clone(),
            user: user::resolve(&Accounts::read(&rootfs.mount), &security, &image.user)?,
            namespaces: self.namespaces(sandbox, &security)?,
            volumes,
            devices,
            seccomp: self.seccomp_profile(&security)?,
        })
    }

    fn namespaces(
        &self,
        sandbox: &SandboxRecord,
        security: &cri::LinuxContainerSecurityContext,
    ) -> Result<Namespaces> {
        let pod = namespace_options(&sandbox.config);
        let own = security.namespace_options.clone().unwrap_or_else(|| pod.clone());
        let pin = |kind: &str| self.inner.paths.namespace(&sandbox.id, kind);
        let mut spaces = Namespaces { join: BTreeMap::new(), host: BTreeSet::new() };
        if is_host(pod.network()) {
            spaces.host.extend(["network", "uts"]);
        } else {
            spaces.join.insert("network", pin("net"));
            spaces.join.insert("uts", pin("uts"));
        }
        if is_host(pod.ipc()) {
            spaces.host.insert("ipc");
        } else {
            spaces.join.insert("ipc", pin("ipc"));
        }
        match own.pid() {
            NamespaceMode::Node => drop(spaces.host.insert("pid")),
            NamespaceMode::Pod if pod.pid() == NamespaceMode::Pod => {
                spaces.join.insert("pid", format!("/proc/{}/ns/pid", sandbox.pid).into());
            }
            NamespaceMode::Target => {
                let target = self.container(&own.target_id)?;
                let record = target.record.lock();
                if record.phase != ContainerPhase::Running || record.sandbox != sandbox.id {
                    return Err(RuntimeError::FailedPrecondition(format!(
                        "target container {:?} is not running in this sandbox",
                        own.target_id
                    )));
                }
                spaces.join.insert("pid", format!("/proc/{}/ns/pid", record.pid).into());
            }
            NamespaceMode::Pod | NamespaceMode::Container => {}
        }
        if user_maps(&pod).is_some() {
            spaces.join.insert("user", pin("user"));
        }
        Ok(spaces)
    }

    /// The profile a pod names: a full path, or a name in the profile directory.
    fn seccomp_profile(
        &self,
        security: &cri::LinuxContainerSecurityContext,
    ) -> Result<Option<serde_json::Value>> {
        use cri::security_profile::ProfileType;
        let Some(profile) = security.seccomp.as_ref().filter(|p| p.profile_type() == ProfileType::Localhost)
        else {
            return Ok(None);
        };
        let name = profile.localhost_ref.trim_start_matches("localhost/");
        let path = self.inner.options.seccomp_profiles.join(name);
        let failed = |e: &dyn std::fmt::Display| {
            RuntimeError::InvalidArgument(format!("cannot load seccomp profile {:?}: {e}", path.display()))
        };
        let text = fs::read(&path).map_err(|e| failed(&e))?;
        serde_json::from_slice(&text).map(Some).map_err(|e| failed(&e))
    }

    pub(super) async fn start(&self, id: &str) -> Result<()> {
        let container = self.container(id)?;
        let _verb = container.verb.lock().await;
        let phase = container.phase();
        if phase != ContainerPhase::Created {
            return Err(RuntimeError::FailedPrecondition(format!(
                "container {id:?} is in {phase:?} state, not created"
            )));
        }
        let sandbox = self.sandbox(&container.record.lock().sandbox)?;
        if sandbox.phase() != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!(
                "sandbox container {:?} is not running",
                sandbox.id
            )));
        }
        self.change_container(&container, |record| record.phase = ContainerPhase::Starting)?;
        match self.launch(&container).await {
            Ok(()) => {
                self.emit_container(&container, cri::ContainerEventType::ContainerStartedEvent);
                Ok(())
            }
            Err(error) => {
                self.start_failed(&container, &error).await;
                Err(RuntimeError::Internal(format!("failed to start container {:?}: {error}", container.id)))
            }
        }
    }

    async fn launch(&self, container: &Arc<Container>) -> Result<()> {
        let record = container.record.lock().clone();
        // Delegates controllers down to the parent; the runtime makes the leaf.
        if let Some((parent, _)) = record.cgroup.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            self.inner.hierarchy.ensure(parent)?;
        }
        let spec = self.launch_spec(&record);
        let call = self.inner.keeper.start(Call::Launch(spec), &[]);
        let started = match tokio::time::timeout(LAUNCH_PATIENCE, call).await {
            Ok(started) => started,
            Err(_) => {
                self.inner.keeper.order(Call::Abort { id: container.id.clone() }, &[]).await?;
                return Err(RuntimeError::DeadlineExceeded("the OCI runtime takes too long".into()));
            }
        };
        self.remove_transient(&container.id);
        let started = started.map_err(|error| match error {
            super::keeper::Error::Failed(failure) => {
                RuntimeError::Internal(format!("OCI runtime run failed: {}", failure.message))
            }
            other => other.into(),
        })?;
        *container.held.lock() = started.held;
        self.change_container(container, |record| {
            // It may have ended already, and that may be written down already.
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Running;
                record.started_at = now();
            }
            record.pid = started.pid;
            record.start_time = pidfd::start_time(started.pid).unwrap_or(0);
        })
    }

    /// How the runtime is run for a container.
    pub(super) fn launch_spec(&self, record: &ContainerRecord) -> LaunchSpec {
        let dir = self.inner.paths.bundle(&record.id);
        let pid_file = self.inner.paths.transient(&record.id, "pid");
        let runtime_log = self.inner.paths.transient(&record.id, "log");
        let mut argv = self.runtime_command(&runtime_log);
        argv.extend(["run", "--detach", "--bundle"].map(str::to_owned));
        argv.push(dir.display().to_string());
        argv.extend(["--pid-file".to_owned(), pid_file.display().to_string(), record.id.clone()]);
        LaunchSpec {
            id: record.id.clone(),
            console_at: argv.len() - 1,
            argv,
            dir,
            pid_file,
            runtime_log,
            log: (!record.log.as_os_str().is_empty()).then(|| record.log.clone()),
            tty: record.config.tty,
            stdin: record.config.stdin,
            stdin_once: record.config.stdin_once,
        }
    }

    /// The runtime with the options every verb needs.
    pub(super) fn runtime_command(&self, log: &Path) -> Vec<String> {
        let options = &self.inner.options;
        let state = self.inner.paths.runtime_state();
        let text = |path: &Path| path.display().to_string();
        let mut argv = vec![text(&options.runtime)];
        argv.extend(["--root".to_owned(), text(&state), "--log".to_owned(), text(log)]);
        argv.extend(["--log-format", "json"].map(str::to_owned));
        argv
    }

    pub(super) fn remove_transient(&self, id: &str) {
        for kind in ["pid", "log", "tty", "json"] {
            let _ = fs::remove_file(self.inner.paths.transient(id, kind));
        }
    }

    async fn start_failed(&self, container: &Arc<Container>, error: &RuntimeError) {
        self.remove_transient(&container.id);
        if let Err(error) = self.release_processes(container).await {
            tracing::warn!(container = container.id, %error, "cleaning up a failed start; removing it tries again");
        }
        let written = self.change_container(container, |record| {
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Exited;
                record.finished_at = now();
                record.exit_code = START_FAILED;
                record.reason = "StartError".into();
                record.message = error.to_string();
            }
        });
        if let Err(error) = written {
            tracing::error!(container = container.id, %error, "recording a failed start");
        }
        container.exited.send_replace(true);
    }

    pub(super) async fn stop(&self, id: &str, grace: Duration) -> Result<()> {
        let container = match self.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        if !container.is_live() {
            return Ok(());
        }
        if !grace.is_zero() {
            let signal = container.record.lock().stop_signal;
            let pidfd = container.held.lock().pidfd.clone();
            if let Some(pidfd) = pidfd {
                let _ = pidfd::kill(&pidfd, signal);
            }
            if self.wait_exit(&container, grace).await {
                return Ok(());
            }
            tracing::info!(container = container.id, ?grace, "did not stop in time, killing it");
        }
        self.kill_container(&container).await
    }

    async fn wait_exit(&self, container: &Container, patience: Duration) -> bool {
        let mut exited = container.exited.subscribe();
        tokio::time::timeout(patience, exited.wait_for(|exited| *exited)).await.is_ok()
    }

    /// Kills everything in a container and waits for its exit to be recorded.
    pub(super) async fn kill_container(&self, container: &Arc<Container>) -> Result<()> {
        if !container.is_live() {
            return Ok(());
        }
        self.inner.hierarchy.cgroup(&container.record.lock().cgroup)?.kill()?;
        if let Some(pidfd) = &container.held.lock().pidfd {
            let _ = pidfd::kill(pidfd, libc::SIGKILL);
        }
        if self.wait_exit(container, KILL_PATIENCE).await {
            return Ok(());
        }
        Err(RuntimeError::DeadlineExceeded(format!(
            "an error occurs during waiting for container {:?} to be killed",
            container.id
        )))
    }

    /// What the kernel and the runtime keep of a container's processes.
    pub(super) async fn release_processes(&self, container: &Container) -> Result<()> {
        let cgroup = container.record.lock().cgroup.clone();
        self.inner.hierarchy.cgroup(&cgroup)?.remove().await?;
        remove_tree(&self.inner.paths.runtime_state().join(&container.id)).map_err(internal("runtime state"))
    }

    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let container = match self.container(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = container.verb.lock().await;
        self.kill_container(&container).await?;
        self.discard_container(&container).await?;
        self.emit_container(&container, cri::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes a container that does not run; called with its verb lock, or before anybody knows it.
    pub(super) async fn discard_container(&self, container: &Arc<Container>) -> Result<()> {
        let id = &container.id;
        let images = self.change_container(container, |record| {
            record.phase = ContainerPhase::Removing;
            let own = std::iter::once(&record.image_id);
            own.chain(&record.volume_images).cloned().collect::<BTreeSet<_>>()
        })?;
        self.release_processes(container).await?;
        let (rootfs, bundle) = (self.rootfs(id), self.inner.paths.bundle(id));
        let remove = move || {
            rootfs.remove()?;
            for dir in ["images", "mapped/layers", "mapped/mounts"] {
                rootfs::unmount_below(&bundle.join(dir))?;
            }
            remove_tree(&bundle)
        };
        self.blocking(move |_| remove().map_err(internal("root filesystem"))).await?;
        self.inner.keeper.forget(id).await;
        for image in images {
            self.inner.images.release(&image, id)?;
        }
        self.inner.container_records.remove(id).map_err(internal("container record"))?;
        self.inner.objects.lock().containers.remove(id);
        Ok(())
    }

    pub(super) async fn update_resources(
        &self,
        id: &str,
        update: cri::LinuxContainerResources,
    ) -> Result<()> {
        let container = self.container(id)?;
        let _verb = container.verb.lock().await;
        let (old, cgroup) = {
            let record = container.record.lock();
            let linux = record.config.linux.clone().unwrap_or_default();
            (linux.resources.unwrap_or_default(), record.cgroup.clone())
        };
        if container.phase() == ContainerPhase::Running {
            let files = limits::files(&update);
            let missing =
                self.inner.hierarchy.cgroup(&cgroup)?.apply(files, self.inner.hierarchy.controllers())?;
            if !missing.is_empty() {
                tracing::warn!(container = id, ?missing, "limits of missing controllers are not enforced");
            }
        }
        let merged = limits::merge(&old, &update);
        self.change_container(&container, |record| {
            record.config.linux.get_or_insert_default().resources = Some(merged);
        })
    }
}

/// Sources are resolved and, as other runtimes do, created as directories where nothing is.
fn prepare_mounts(config: &mut cri::ContainerConfig) -> Result<()> {
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

/// Number of the signal that asks a container to stop.
fn stop_signal(config: &cri::ContainerConfig, image: &str) -> i32 {
    let asked = config.stop_signal();
    let name = if asked == cri::Signal::RuntimeDefault { image } else { asked.as_str_name() };
    signal_number(name).unwrap_or(libc::SIGTERM)
}

/// A signal by its number or name, with or without `SIG`, `RTMIN+3` and `SIGRTMINPLUS3` alike.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase().replace("PLUS", "+").replace("MINUS", "-");
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    for (base, number) in [("RTMIN", 34), ("RTMAX", 64)] {
        if let Some(offset) = short.strip_prefix(base) {
            return if offset.is_empty() { Some(number) } else { Some(number + offset.parse::<i32>().ok()?) };
        }
    }
    match short {
        "CLD" => Some(libc::SIGCHLD),
        "IOT" => Some(libc::SIGABRT),
        "POLL" => Some(libc::SIGIO),
        _ => format!("SIG{short}").parse::<nix::sys::signal::Signal>().ok().map(|s| s as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (name, number) in [
            ("SIGTERM", Some(15)),
            ("quit", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGRTMINPLUS3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGRTMAXMINUS1", Some(63)),
            ("SIGCLD", Some(17)),
            ("SIGNONE", None),
            ("99", None),
        ] {
            assert_eq!(signal_number(name), number, "{name}");
        }
    }
}
