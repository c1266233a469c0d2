//! Topology manager of the node: gives the containers of a pod cpus, memory and devices of the same NUMA nodes.

use k8s_openapi::api::core::v1::{Container, Pod};
use std::path::Path;
use tokio::sync::Mutex;

use crate::config::NodeConfig;
use crate::devices::{AllocateError, Devices, Spare};
use crate::numa::{self, Distances, Hints, Machine, Nodes, Policy, Scope, Verdict};
use crate::pod::cpus::{Cpus, CpusError};
use crate::pod::memory::{Memory, MemoryError};
use crate::pod::spec::{self, Role};

/// Resources of the node that come from NUMA nodes, and whether containers get them from the same ones.
pub struct AlignedResources {
    policy: Policy,
    scope: Scope,
    /// The nodes of the machine.
    all: Nodes,
    /// Their distances, if close ones are preferred.
    closest: Option<Distances>,
    /// CPU manager, if the static policy is enabled.
    pub(super) cpus: Option<Cpus>,
    /// Memory manager, if the static policy is enabled.
    pub(super) memory: Option<Memory>,
    /// Between the hints and the allocation nobody else takes anything.
    alone: Mutex<()>,
}

/// Why a pod does not get its resources.
#[derive(Debug, thiserror::Error)]
pub enum AlignError {
    /// They are there, but not on the same nodes.
    #[error("Resources cannot be allocated with Topology locality")]
    Topology,
    /// Too few cpus.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// Too little memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Devices.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Devices(AllocateError),
}

impl AlignError {
    /// The reason of the pod's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Topology => "TopologyAffinityError",
            Self::Cpus(error) => error.reason(),
            Self::Memory(_) | Self::Devices(_) => "UnexpectedAdmissionError",
        }
    }
}

impl AlignedResources {
    /// Loads what pods were given before a restart. `system` is the directory of sysfs that describes the machine.
    pub fn open(config: &NodeConfig, system: &Path) -> Self {
        let (machine, options) = (Machine::read(system), config.topology_options);
        let (nodes, most) = (machine.nodes.len(), options.max_nodes.min(numa::MOST_NODES));
        let is_small = nodes <= most;
        if !is_small && (config.topology_policy != Policy::None || config.static_memory) {
            tracing::error!(
                nodes,
                most,
                "resources are not aligned on this machine: it has more NUMA nodes than max-allowable-numa-nodes, or than are supported"
            );
        }
        let is_known = machine.distances.is_complete(machine.all());
        if options.prefer_closest && !is_known {
            tracing::warn!(
                "NUMA nodes are not chosen by distance: the machine does not say how far they are from each other"
            );
        }
        let prefers_closest =
            options.prefer_closest && is_known && config.topology_policy != Policy::SingleNumaNode;
        let reserved = |resource: &str| config.reserved.get(resource).copied().unwrap_or_default();
        let memory = config.static_memory && is_small;
        let bytes = u64::try_from(reserved("memory")).unwrap_or_default();
        Self {
            policy: if is_small { config.topology_policy } else { Policy::None },
            scope: config.topology_scope,
            all: machine.all(),
            closest: prefers_closest.then(|| machine.distances.clone()),
            memory: memory.then(|| Memory::open(&config.root_dir, &machine, bytes)),
            cpus: config
                .static_cpus
                .map(|options| Cpus::open(&config.root_dir, system, machine, reserved("cpu"), options)),
            alone: Mutex::default(),
        }
    }

    /// Whether resources are aligned.
    pub fn is_on(&self) -> bool {
        self.policy != Policy::None
    }

    /// Gives the containers of a pod devices, and memory and cpus where they are aligned with them. `survived`: the pod ran before
    /// the agent started, and keeps what it has. `true` if the shared cpus changed. On an error the caller releases the pod.
    pub async fn allocate(&self, pod: &Pod, devices: &Devices, survived: bool) -> Result<bool, AlignError> {
        if !self.is_on() && self.memory.is_none() {
            return devices.allocate(pod, survived).await.map(|()| false).map_err(AlignError::Devices);
        }
        if !survived {
            devices.wait_for(pod).await;
        }
        let _alone = self.alone.lock().await;
        let spec = spec::spec(pod);
        let is_judged = self.is_on() && !survived;
        let of_pod = match self.scope {
            Scope::Pod if is_judged => self.judge(&self.hints_of_pod(pod, devices))?,
            _ => None,
        };
        let (mut spare, mut changed) = (Spare::default(), false);
        for (role, container) in spec::containers(&spec).filter(|(role, _)| *role != Role::Ephemeral) {
            let near = match self.scope {
                Scope::Container if is_judged => {
                    self.judge(&self.hints_of_container(pod, &container, devices, &spare))?
                }
                _ => of_pod,
            };
            changed |= self.take_near(pod, &container, near)?;
            let allocated = devices.allocate_container(pod, (role, &*container), &mut spare, survived, near);
            allocated.await.map_err(AlignError::Devices)?;
        }
        Ok(changed)
    }

    /// Cpus and memory of one container. `true` if the shared cpus changed.
    fn take_near(&self, pod: &Pod, container: &Container, near: Option<Nodes>) -> Result<bool, AlignError> {
        let changed = match self.cpus.as_ref().filter(|_| self.is_on()) {
            Some(cpus) => cpus.admit_near(pod, &container.name, near)?,
            None => false,
        };
        if let Some(memory) = &self.memory {
            memory.admit_near(pod, &container.name, near)?;
        }
        Ok(changed)
    }

    /// The nodes that resources are to come from, if the policy admits them.
    fn judge(&self, hints: &[Hints]) -> Result<Option<Nodes>, AlignError> {
        let Verdict { nodes, is_admitted } = numa::merge(self.policy, self.all, hints, self.closest.as_ref());
        if is_admitted { Ok(nodes) } else { Err(AlignError::Topology) }
    }

    fn hints_of_container(
        &self,
        pod: &Pod,
        container: &Container,
        devices: &Devices,
        spare: &Spare,
    ) -> Vec<Hints> {
        let mut all = devices.hints_of_container(pod, container, spare, self.all);
        all.extend(self.cpus.as_ref().map(|cpus| cpus.hints(pod, Some(&container.name))));
        all.extend(self.memory.as_ref().map(|memory| memory.hints(pod, Some(&container.name))));
        all
    }

    fn hints_of_pod(&self, pod: &Pod, devices: &Devices) -> Vec<Hints> {
        let mut all = devices.hints_of_pod(pod, self.all);
        all.extend(self.cpus.as_ref().map(|cpus| cpus.hints(pod, None)));
        all.extend(self.memory.as_ref().map(|memory| memory.hints(pod, None)));
        all
    }
}

#[cfg(test)]
mod tests;
