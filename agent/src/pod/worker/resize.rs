//! In-place resize: a running container follows the resources of its spec.

use coracle_proto::cri;
use std::collections::HashSet;

use super::super::observed::State;
use super::super::plan::{Cause, Kill};
use super::super::spec::{self, Role};
use super::super::{resources, stop};
use super::Worker;
use crate::events::Kind;

/// The numbers a resize changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    shares: i64,
    quota: i64,
    memory: i64,
}

impl From<&cri::LinuxContainerResources> for Applied {
    fn from(from: &cri::LinuxContainerResources) -> Self {
        Applied { shares: from.cpu_shares, quota: from.cpu_quota, memory: from.memory_limit_in_bytes }
    }
}

impl Worker {
    /// Gives running containers the resources their spec asks for, where they have others.
    pub(super) async fn resize(&mut self) {
        let pod = self.pod.clone();
        let spec = spec::spec(&pod);
        let memory = self.context.facts.read().memory;
        let alive: HashSet<String> = self.observed.alive().map(|instance| instance.id.clone()).collect();
        self.applied.retain(|id, _| alive.contains(id));
        let mut changed = false;
        for (role, container) in
            spec::containers(&spec).filter(|(role, _)| matches!(role, Role::Regular | Role::Sidecar))
        {
            let running =
                self.observed.latest(&container.name).filter(|instance| instance.state == State::Running);
            let Some(instance) = running.cloned() else { continue };
            if self.stopping.contains_key(&instance.id) {
                continue;
            }
            let wanted = resources::container(&pod, role, &container, memory);
            let target = Applied::from(&wanted);
            // One seen for the first time was made from this spec, as far as anybody can tell.
            let has = *self.applied.entry(instance.id.clone()).or_insert(target);
            if has == target {
                continue;
            }
            self.applied.insert(instance.id.clone(), target);
            let restarts = |resource: &str| {
                container.resize_policy.iter().flatten().any(|policy| {
                    policy.resource_name == resource && policy.restart_policy == "RestartContainer"
                })
            };
            let cpu_changed = has.shares != target.shares || has.quota != target.quota;
            if (cpu_changed && restarts("cpu")) || (has.memory != target.memory && restarts("memory")) {
                let message = format!("Container {} resize requires restart", container.name);
                self.replaced.insert(instance.id.clone());
                let kill = Kill {
                    id: instance.id,
                    name: container.name.clone(),
                    cause: Cause::Changed,
                    replace: true,
                    message,
                };
                let grace = std::time::Duration::from_secs(u64::try_from(spec::grace(&pod)).unwrap_or(30));
                let grace = stop::grace(&pod, &kill, grace);
                self.kill(kill, grace);
                continue;
            }
            match self.context.runtime.update_container_resources(&instance.id, wanted).await {
                Ok(()) => changed = true,
                Err(error) => {
                    let text = format!("error resizing container {}: {error}", container.name);
                    self.context.events.pod(&pod, Kind::Warning, "ResizeError", text);
                }
            }
        }
        if !changed {
            return;
        }
        if let Some(sandbox) = self.observed.ready_sandbox() {
            let all = resources::pod(&spec);
            if let Err(error) =
                self.context.runtime.update_pod_sandbox_resources(&sandbox.id, None, Some(all)).await
            {
                tracing::debug!(uid = self.uid(), %error, "pod's own limits not changed");
            }
        }
        let generation = pod.metadata.generation.unwrap_or(0);
        let text = format!("Pod resize completed: {{\"generation\":{generation}}}");
        self.context.events.pod(&pod, Kind::Normal, "ResizeCompleted", text);
    }
}
