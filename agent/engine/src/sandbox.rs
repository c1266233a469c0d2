//! Sandboxes: `pause` in its cgroup and namespaces, pinned, on the network.

use std::sync::Arc;

use coracle_proto::causes;
use coracle_proto::cri::{self, NamespaceMode};

use super::cni::{Dns, PodNet, PortMapping};
use super::error::internal;
use super::record::{SandboxPhase, SandboxRecord};
use super::{Container, Engine, Sandbox, new_id, now, sandbox_files};
use crate::runtime::{FirstContainer, Result, RuntimeError};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{Call, SandboxSpec, UserMaps};

/// Default user of `pause`: nobody.
const PAUSE_USER: u32 = 65535;
/// `pause` is the last process of the pod that the OOM killer selects.
const PAUSE_OOM_SCORE: i32 = -998;

/// The namespaces a pod asks for.
pub(super) fn namespace_options(config: &cri::PodSandboxConfig) -> cri::NamespaceOption {
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    security.and_then(|s| s.namespace_options.clone()).unwrap_or_default()
}

pub(super) fn is_host(mode: NamespaceMode) -> bool {
    mode == NamespaceMode::Node
}

/// The pod's user namespace mappings, when it has one.
pub(super) fn user_maps(options: &cri::NamespaceOption) -> Option<UserMaps> {
    let user = options.userns_options.as_ref().filter(|u| u.mode() == NamespaceMode::Pod)?;
    let lines = |maps: &[cri::IdMapping]| {
        maps.iter().map(|m| format!("{} {} {}\n", m.container_id, m.host_id, m.length)).collect()
    };
    (!user.uids.is_empty()).then(|| UserMaps { uid: lines(&user.uids), gid: lines(&user.gids) })
}

/// The pod's root on the host: (user, group); the host's own without a user namespace.
pub(super) fn root_of(options: &cri::NamespaceOption) -> (u32, u32) {
    let user = options.userns_options.as_ref().filter(|u| u.mode() == NamespaceMode::Pod);
    let root = |maps: &[cri::IdMapping]| maps.iter().find(|m| m.container_id == 0).map_or(0, |m| m.host_id);
    user.map_or((0, 0), |u| (root(&u.uids), root(&u.gids)))
}

fn name_of(config: &cri::PodSandboxConfig) -> Result<String> {
    let meta = config.metadata.as_ref();
    let meta =
        meta.ok_or_else(|| RuntimeError::InvalidArgument("sandbox config must include metadata".into()))?;
    Ok(format!("{}_{}_{}_{}", meta.name, meta.namespace, meta.uid, meta.attempt))
}

impl Engine {
    /// Creates a sandbox, and its first container if its configuration arrives in time; returns the ids of both.
    pub(super) async fn run_sandbox(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: Option<FirstContainer>,
    ) -> Result<(String, Option<String>)> {
        if !handler.is_empty() && handler != self.handler_name() {
            return Err(RuntimeError::InvalidArgument(format!(
                "failed to get sandbox runtime: no runtime for {handler:?} is configured"
            )));
        }
        if let Some(user) = &namespace_options(&config).userns_options
            && !matches!(user.mode(), NamespaceMode::Pod | NamespaceMode::Node)
        {
            return Err(RuntimeError::InvalidArgument(format!(
                "unsupported user namespace mode: {}",
                user.mode().as_str_name()
            )));
        }
        for port in config.port_mappings.iter().filter(|port| port.host_port > 0) {
            if let Some(bad) =
                [port.host_port, port.container_port].iter().find(|n| !(1..=65535).contains(*n))
            {
                return Err(RuntimeError::InvalidArgument(format!(
                    "port {bad} of a port mapping is out of range"
                )));
            }
        }
        let sandbox = self.reserve_sandbox(config, handler)?;
        let _verb = sandbox.verb.lock().await;
        match self.build_sandbox(&sandbox, first).await {
            Ok(container) => {
                self.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerCreatedEvent);
                self.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerStartedEvent);
                if let Some(container) = &container {
                    self.emit_container(container, cri::ContainerEventType::ContainerCreatedEvent);
                }
                Ok((sandbox.id.clone(), container.map(|container| container.id.clone())))
            }
            Err(error) => {
                if let Err(cleanup) = self.discard_sandbox(&sandbox).await {
                    tracing::warn!(sandbox = sandbox.id, error = %cleanup, "failed sandbox not cleaned up, removing it will retry");
                }
                Err(error)
            }
        }
    }

    /// Name of the one handler besides the default: the runtime's own.
    pub(super) fn handler_name(&self) -> String {
        let name = self.inner.options.runtime.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Reserves the pod's name for a new id and writes the first record.
    fn reserve_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<Arc<Sandbox>> {
        let name = name_of(&config)?;
        let id = new_id();
        let linux = config.linux.as_ref();
        let parent = linux.map(|l| l.cgroup_parent.as_str()).filter(|p| !p.is_empty());
        let parent = parent.unwrap_or(&self.inner.options.cgroup_parent).trim_matches('/');
        let record = SandboxRecord {
            id: id.clone(),
            cgroup: format!("/{parent}/{id}"),
            handler: handler.to_owned(),
            created_at: now(),
            config,
            ..Default::default()
        };
        self.inner.hierarchy.cgroup(&record.cgroup)?;
        let sandbox = Sandbox::new(record);
        {
            let mut objects = self.inner.objects.lock();
            let taken = objects.sandboxes.values().find(|s| {
                let record = s.record.lock();
                record.phase != SandboxPhase::Removing && name_of(&record.config).is_ok_and(|n| n == name)
            });
            if let Some(taken) = taken {
                return Err(RuntimeError::AlreadyExists(format!(
                    "failed to reserve sandbox name {name:?}: name {name:?} is reserved for {:?}",
                    taken.id
                )));
            }
            objects.sandboxes.insert(id, sandbox.clone());
        }
        if let Err(error) = self.change_sandbox(&sandbox, |_| ()) {
            self.inner.objects.lock().sandboxes.remove(&sandbox.id);
            return Err(error);
        }
        Ok(sandbox)
    }

    async fn build_sandbox(
        &self,
        sandbox: &Arc<Sandbox>,
        first: Option<FirstContainer>,
    ) -> Result<Option<Arc<Container>>> {
        let record = sandbox.record.lock().clone();
        let options = namespace_options(&record.config);
        let (host_net, host_ipc) = (is_host(options.network()), is_host(options.ipc()));
        let hostname = hostname(&record.config, host_net);
        let dir = self.inner.paths.sandbox(&sandbox.id);
        sandbox_files::write(&dir, &record.config, &hostname, !host_ipc)
            .and_then(|()| sandbox_files::chown(&dir, root_of(&options)))
            .map_err(internal("sandbox files"))?;
        let cgroup = self.inner.hierarchy.ensure(&record.cgroup)?;
        let security =
            record.config.linux.as_ref().and_then(|l| l.security_context.clone()).unwrap_or_default();
        let spec = SandboxSpec {
            id: sandbox.id.clone(),
            root: self.inner.paths.pause_root(),
            net: !host_net,
            ipc: !host_ipc,
            uts: !host_net,
            pid: options.pid() == NamespaceMode::Pod,
            user: user_maps(&options),
            hostname: if host_net { String::new() } else { hostname },
            sysctls: record.config.linux.iter().flat_map(|l| l.sysctls.clone()).collect(),
            uid: security.run_as_user.map_or(PAUSE_USER, |u| u.value as u32),
            gid: security.run_as_group.map_or(PAUSE_USER, |g| g.value as u32),
            oom_score_adj: PAUSE_OOM_SCORE,
        };
        let pins = [("net", spec.net), ("ipc", spec.ipc), ("uts", spec.uts), ("user", spec.user.is_some())];
        let started = self.inner.keeper.start(Call::Sandbox(spec), &[&cgroup.open()?]).await?;
        *sandbox.held.lock() = started.held;
        self.change_sandbox(sandbox, |record| {
            record.pid = started.pid;
            record.start_time = pidfd::start_time(started.pid).unwrap_or(0);
            record.attached = !host_net;
        })?;
        self.prepare_migration(sandbox);
        for (kind, wanted) in pins {
            if wanted {
                let path = self.inner.paths.namespace(&sandbox.id, kind);
                sandbox_files::pin(started.pid, kind, &path).map_err(internal("pinning a namespace"))?;
            }
        }
        let addresses = async { if host_net { Ok(Vec::new()) } else { self.join_network(sandbox).await } };
        // If the network fails, the sandbox is discarded with the precreated container.
        let (ips, container) = tokio::join!(addresses, self.precreate_container(sandbox, first));
        let ips = ips?;
        self.change_sandbox(sandbox, |record| {
            record.ips = ips;
            record.phase = SandboxPhase::Ready;
        })?;
        Ok(container)
    }

    async fn join_network(&self, sandbox: &Sandbox) -> Result<Vec<String>> {
        let attachment = self.inner.network.attach(&self.pod_net(sandbox)).await.map_err(|error| {
            RuntimeError::Internal(format!(
                "failed to setup network for sandbox {:?}: {}",
                sandbox.id,
                causes::chain(&error)
            ))
        })?;
        Ok(attachment.ips.iter().map(ToString::to_string).collect())
    }

    /// The pod as its network sees it.
    pub(super) fn pod_net(&self, sandbox: &Sandbox) -> PodNet {
        let record = sandbox.record.lock();
        let meta = record.config.metadata.clone().unwrap_or_default();
        let dns = record.config.dns_config.clone().unwrap_or_default();
        let port = |p: &cri::PortMapping| PortMapping {
            host_port: p.host_port as u16,
            container_port: p.container_port as u16,
            protocol: p.protocol().as_str_name().to_ascii_lowercase(),
            host_ip: p.host_ip.clone(),
        };
        PodNet {
            id: sandbox.id.clone(),
            netns: self.inner.paths.namespace(&sandbox.id, "net"),
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            port_mappings: record.config.port_mappings.iter().filter(|p| p.host_port > 0).map(port).collect(),
            dns: Dns {
                servers: dns.servers,
                searches: dns.searches,
                options: dns.options,
                domain: String::new(),
            },
            cgroup: Some(record.cgroup.clone()),
            // The keeper brought loopback up before it started `pause`.
            has_loopback: true,
            ..Default::default()
        }
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let sandbox = match self.sandbox(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = sandbox.verb.lock().await;
        self.teardown_sandbox(&sandbox).await
    }

    /// Stops everything in the sandbox and releases its network; the record stays. Idempotent.
    ///
    /// Continues after errors and returns all of them; the next call retries.
    async fn teardown_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let mut errors = Vec::new();
        let was_ready = sandbox.phase() == SandboxPhase::Ready;
        if was_ready {
            self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady)?;
        }
        let containers = self.containers_of(&sandbox.id);
        let kills = containers.iter().map(|container| self.kill_with_sandbox(container));
        errors.extend(futures::future::join_all(kills).await.into_iter().filter_map(Result::err));
        if sandbox.record.lock().attached {
            match self.inner.network.detach(&self.pod_net(sandbox)).await {
                Ok(()) => self.change_sandbox(sandbox, |record| record.attached = false)?,
                Err(error) => errors.push(RuntimeError::Internal(format!(
                    "failed to destroy network for sandbox {:?}: {}",
                    sandbox.id,
                    causes::chain(&error)
                ))),
            }
        }
        let cgroup = self.inner.hierarchy.cgroup(&sandbox.record.lock().cgroup)?;
        errors.extend(cgroup.remove().await.err().map(RuntimeError::from));
        // `pause` may have been moved out of its cgroup.
        if let Some(pidfd) = &sandbox.held.lock().pidfd {
            let _ = pidfd::kill(pidfd, libc::SIGKILL);
        }
        if sandbox.record.lock().attached {
            return Err(join(errors));
        }
        let dir = self.inner.paths.sandbox(&sandbox.id);
        errors.extend(sandbox_files::remove(&dir).map_err(internal("sandbox files")).err());
        if was_ready {
            self.emit_sandbox(sandbox, cri::ContainerEventType::ContainerStoppedEvent);
        }
        if errors.is_empty() { Ok(()) } else { Err(join(errors)) }
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let sandbox = match self.sandbox(id) {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let _verb = sandbox.verb.lock().await;
        self.discard_sandbox(&sandbox).await?;
        self.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes the sandbox with everything in it. The caller holds its lock, or the sandbox is not published yet.
    pub(super) async fn discard_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        self.teardown_sandbox(sandbox).await?;
        self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::Removing)?;
        for container in self.containers_of(&sandbox.id) {
            let _verb = container.verb.lock().await;
            self.discard_container(&container).await?;
        }
        self.inner.keeper.forget(&sandbox.id).await;
        self.inner.sandbox_records.remove(&sandbox.id).map_err(internal("sandbox record"))?;
        self.inner.objects.lock().sandboxes.remove(&sandbox.id);
        Ok(())
    }
}

/// Host name of the pod. Taken from the configuration, never from the hostname file: containers can write that.
pub(super) fn hostname(config: &cri::PodSandboxConfig, host_net: bool) -> String {
    if config.hostname.is_empty() || host_net {
        return nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    }
    config.hostname.clone()
}

fn join(errors: Vec<RuntimeError>) -> RuntimeError {
    let mut errors = errors.into_iter();
    let first = errors.next().unwrap_or_else(|| RuntimeError::Internal("unknown".into()));
    let rest: Vec<String> = errors.map(|e| e.to_string()).collect();
    if rest.is_empty() { first } else { RuntimeError::Internal(format!("{first}; {}", rest.join("; "))) }
}
