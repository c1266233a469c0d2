//! Sandboxes: `pause` in its cgroup and namespaces, pinned, on the network.

// Files, `pause`, network.
mod build;
// Stop and remove.
mod teardown;
// Recovery after a restart.
mod recover;

use coracle_cli::causes;
use std::sync::Arc;

use coracle_proto::cri::{self, NamespaceMode};

use crate::bandwidth;
use crate::cgroup::Hierarchy;
use crate::cgroup_migration::Migration;
use crate::container::Containers;
use crate::events::Events;
use crate::keeper::Keeper;
use crate::namespace::namespace_options;
use crate::objects::{Objects, Sandbox, reserved_name};
use crate::oci_runtime::OciRuntime;
use crate::paths::Paths;
use crate::pod_network::PodNetwork;
use crate::record::SandboxRecord;
use crate::runtime::{FirstContainer, Result, RuntimeError};
use crate::stamp::{new_id, now};
use crate::status::sandbox_status_of;
use crate::tasks::Tasks;

/// The sandboxes of the engine.
pub(crate) struct Sandboxes {
    pub(crate) objects: Arc<Objects>,
    pub(crate) events: Events,
    pub(crate) containers: Arc<Containers>,
    pub(crate) network: Arc<PodNetwork>,
    pub(crate) keeper: Keeper,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) migration: Arc<Migration>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) oci: Arc<OciRuntime>,
    /// Cgroup of sandboxes that name no parent.
    pub(crate) cgroup_parent: String,
}

impl Sandboxes {
    /// Creates a sandbox, and its first container if its configuration arrives in time; returns the ids of both.
    pub(crate) async fn run(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
        first: Option<FirstContainer>,
    ) -> Result<(String, Option<String>)> {
        if self.oci.program_for(handler).is_none() {
            return Err(RuntimeError::InvalidArgument(format!(
                "failed to get sandbox runtime: no runtime for {handler:?} is configured"
            )));
        }
        check(&config)?;
        let sandbox = self.reserve(config, handler)?;
        let _verb = sandbox.verb.lock().await;
        match self.build(&sandbox, first).await {
            Ok(container) => {
                self.events.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerCreatedEvent);
                self.events.emit_sandbox(&sandbox, cri::ContainerEventType::ContainerStartedEvent);
                if let Some(container) = &container {
                    self.events.emit_container(container, cri::ContainerEventType::ContainerCreatedEvent);
                }
                Ok((sandbox.id.clone(), container.map(|container| container.id.clone())))
            }
            Err(error) => {
                if let Err(cleanup) = self.discard(&sandbox).await {
                    tracing::warn!(sandbox = sandbox.id, error = %causes::chain(&cleanup), "failed sandbox not cleaned up, removing it will retry");
                }
                Err(error)
            }
        }
    }

    /// Reserves the pod's name for a new id and writes the first record.
    fn reserve(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<Arc<Sandbox>> {
        let name = reserved_name(&config)
            .ok_or_else(|| RuntimeError::InvalidArgument("sandbox config must include metadata".into()))?;
        let id = new_id();
        let linux = config.linux.as_ref();
        let parent = linux.map(|l| l.cgroup_parent.as_str()).filter(|p| !p.is_empty());
        let parent = parent.unwrap_or(&self.cgroup_parent).trim_matches('/');
        let record = SandboxRecord {
            cgroup: format!("/{parent}/{id}"),
            id,
            handler: handler.to_owned(),
            created_at: now(),
            config,
            ..Default::default()
        };
        self.hierarchy.cgroup(&record.cgroup)?;
        self.objects.add_sandbox(record, &name)
    }

    pub(crate) fn status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        let sandbox = self.objects.sandbox(id)?;
        Ok(sandbox_status_of(&self.objects, &sandbox, verbose))
    }

    pub(crate) fn list(&self, filter: &cri::PodSandboxFilter) -> Vec<cri::PodSandbox> {
        let sandboxes = self.objects.sandboxes();
        sandboxes.iter().filter(|s| s.matches(filter)).map(|s| s.listed()).collect()
    }
}

/// Rejects configurations that can never work.
fn check(config: &cri::PodSandboxConfig) -> Result<()> {
    if let Some(user) = &namespace_options(config).userns_options
        && !matches!(user.mode(), NamespaceMode::Pod | NamespaceMode::Node)
    {
        return Err(RuntimeError::InvalidArgument(format!(
            "unsupported user namespace mode: {}",
            user.mode().as_str_name()
        )));
    }
    build::pause_ids(config)?;
    bandwidth::of(&config.annotations)
        .map_err(|why| RuntimeError::InvalidArgument(causes::chain(&why).to_string()))?;
    for (index, mapping) in config.port_mappings.iter().enumerate() {
        // Without a port of the host there is nothing to map, whatever the container's is.
        let least = i32::from(mapping.host_port != 0);
        let ports = [("host_port", mapping.host_port), ("container_port", mapping.container_port)];
        for (field, port) in ports {
            if !(least..=i32::from(u16::MAX)).contains(&port) {
                return Err(RuntimeError::InvalidArgument(format!(
                    "port_mappings[{index}].{field}: {port} is out of range"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::cri::{Int64Value, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, PortMapping};

    fn as_user(run_as_user: Option<i64>, run_as_group: Option<i64>) -> cri::PodSandboxConfig {
        let [run_as_user, run_as_group] =
            [run_as_user, run_as_group].map(|id| id.map(|value| Int64Value { value }));
        let security_context = LinuxSandboxSecurityContext {
            run_as_user,
            run_as_group,
            ..LinuxSandboxSecurityContext::default()
        };
        let linux = LinuxPodSandboxConfig {
            security_context: Some(security_context),
            ..LinuxPodSandboxConfig::default()
        };
        cri::PodSandboxConfig { linux: Some(linux), ..cri::PodSandboxConfig::default() }
    }

    fn mapped(host_port: i32, container_port: i32) -> cri::PodSandboxConfig {
        let mapping = PortMapping { host_port, container_port, ..PortMapping::default() };
        let port_mappings = vec![PortMapping::default(), mapping];
        cri::PodSandboxConfig { port_mappings, ..cri::PodSandboxConfig::default() }
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_field() {
        for (config, refused) in [
            (as_user(None, None), None),
            (as_user(Some(0), Some(4_294_967_294)), None),
            (as_user(Some(1 << 32), None), Some("linux.security_context.run_as_user: 4294967296 ")),
            (as_user(Some(-1), None), Some("linux.security_context.run_as_user: -1 ")),
            (
                as_user(Some(1), Some(u32::MAX.into())),
                Some("linux.security_context.run_as_group: 4294967295 "),
            ),
            (mapped(65535, 1), None),
            (mapped(0, 0), None),
            (mapped(65536, 1), Some("port_mappings[1].host_port: 65536 ")),
            (mapped(-1, 1), Some("port_mappings[1].host_port: -1 ")),
            (mapped(1, 0), Some("port_mappings[1].container_port: 0 ")),
            (mapped(1, 65616), Some("port_mappings[1].container_port: 65616 ")),
            (mapped(0, -1), Some("port_mappings[1].container_port: -1 ")),
        ] {
            match (check(&config), refused) {
                (Ok(()), None) => {}
                (Err(RuntimeError::InvalidArgument(text)), Some(begin)) => {
                    assert!(text.starts_with(begin), "{text}")
                }
                (result, _) => panic!("{config:?}: {result:?}"),
            }
        }
    }
}
