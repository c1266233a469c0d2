//! Creates a sandbox: files, `pause` in its cgroup and namespaces, network.

use std::sync::Arc;

use coracle_proto::cri::{self, NamespaceMode};
use coracle_trace::{Stage, tracked, tracked_sync};

use super::Sandboxes;
use crate::cgroup::Cgroup;
use crate::error::internal;
use crate::namespace::{hostname, is_host, namespace_options, root_of, user_maps};
use crate::objects::{Container, Sandbox};
use crate::record::SandboxPhase;
use crate::runtime::{FirstContainer, Result, RuntimeError};
use crate::{sandbox_files, user};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{Call, SandboxSpec};

/// Default user of `pause`: nobody.
const PAUSE_USER: u32 = 65535;
/// `pause` is the last process of the pod that the OOM killer selects.
const PAUSE_OOM_SCORE: i32 = -998;

/// Uid and gid of `pause`.
pub(super) fn pause_ids(config: &cri::PodSandboxConfig) -> Result<(u32, u32)> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let id = |field, wanted: Option<cri::Int64Value>| {
        let id = wanted.map_or(Ok(PAUSE_USER), |wanted| user::id(field, wanted.value));
        id.map_err(|error| RuntimeError::InvalidArgument(format!("linux.security_context.{error}")))
    };
    let uid = id("run_as_user", security.and_then(|security| security.run_as_user))?;
    Ok((uid, id("run_as_group", security.and_then(|security| security.run_as_group))?))
}

impl Sandboxes {
    /// Makes a reserved sandbox ready; returns its first container if that was created too.
    pub(super) async fn build(
        &self,
        sandbox: &Sandbox,
        first: Option<FirstContainer>,
    ) -> Result<Option<Arc<Container>>> {
        let record = sandbox.record.lock().clone();
        let options = namespace_options(&record.config);
        let (host_net, host_ipc) = (is_host(options.network()), is_host(options.ipc()));
        let hostname = hostname(&record.config, host_net);
        let dir = self.paths.sandbox(&sandbox.id);
        tracked_sync(Stage::SandboxFiles, "", || {
            sandbox_files::write(&dir, &record.config, &hostname, !host_ipc)
                .and_then(|()| sandbox_files::chown(&dir, root_of(&options)))
        })
        .map_err(internal("sandbox files"))?;
        let cgroup = tracked_sync(Stage::Cgroup, "", || self.hierarchy.ensure(&record.cgroup))?;
        let (uid, gid) = pause_ids(&record.config)?;
        let spec = SandboxSpec {
            id: sandbox.id.clone(),
            root: self.paths.pause_root(),
            net: !host_net,
            ipc: !host_ipc,
            uts: !host_net,
            pid: options.pid() == NamespaceMode::Pod,
            user: user_maps(&options),
            hostname: if host_net { String::new() } else { hostname },
            sysctls: record.config.linux.iter().flat_map(|l| l.sysctls.clone()).collect(),
            uid,
            gid,
            oom_score_adj: PAUSE_OOM_SCORE,
        };
        tracked(Stage::Namespaces, "", Box::pin(self.start_pause(sandbox, spec, &cgroup))).await?;
        let addresses = async { if host_net { Ok(Vec::new()) } else { self.network.join(sandbox).await } };
        // If the network fails, the sandbox is discarded with the precreated container.
        let (ips, container) = tokio::join!(addresses, self.containers.precreate(sandbox, first));
        let ips = ips?;
        self.objects.change_sandbox(sandbox, |record| {
            record.ips = ips;
            record.phase = SandboxPhase::Ready;
        })?;
        Ok(container)
    }

    /// Starts `pause` in its cgroup and namespaces, and pins the namespaces.
    async fn start_pause(&self, sandbox: &Sandbox, spec: SandboxSpec, cgroup: &Cgroup) -> Result<()> {
        let pins = [("net", spec.net), ("ipc", spec.ipc), ("uts", spec.uts), ("user", spec.user.is_some())];
        let own_net = spec.net;
        let started = self.keeper.start(Call::Sandbox(spec), &[&cgroup.open()?]).await?;
        *sandbox.held.lock() = started.held;
        self.objects.change_sandbox(sandbox, |record| {
            record.pid = started.pid;
            record.start_time = pidfd::start_time(started.pid).unwrap_or(0);
            record.attached = own_net;
        })?;
        self.migration.prepare(sandbox);
        for (kind, wanted) in pins {
            if wanted {
                let path = self.paths.namespace(&sandbox.id, kind);
                sandbox_files::pin(started.pid, kind, &path).map_err(internal("pinning a namespace"))?;
            }
        }
        Ok(())
    }
}
