//! Resources of the node that pods are given: cgroups, cpus and ranges of user ids.

use coracle_cli::causes;
use coracle_proto::cri;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::align::{AlignError, AlignedResources};
use super::node_labels;
use super::table::{Message, PodTable};
use crate::config::NodeConfig;
use crate::config::cpu_quotas::CpuQuotas;
use crate::devices::Devices;
use crate::pod::all_pods::{self, Limited};
use crate::pod::cgroup::{self, NodeLimits, PodCgroupError};
use crate::pod::cpus::{Cpus, CpusError};
use crate::pod::node_facts::{NodeFacts, SharedFacts};
use crate::pod::pod_limits::PodLimits;
use crate::pod::resources::{self, NodeMemory};
use crate::pod::users::{Users, UsersError};
use crate::pod::{qos, spec};
use coracle_engine::cgroup::Hierarchy;

/// What the node has to give, and what it has given.
pub struct NodeResources {
    config: Arc<NodeConfig>,
    facts: SharedFacts,
    pods: PodTable,
    /// Cgroups, where the host has version 2 of them.
    cgroups: Option<Hierarchy>,
    /// What cgroups limit here.
    limited: Limited,
    /// Swap that pods may use, in bytes.
    swap: i64,
    /// CPU manager, memory manager and topology manager.
    aligned: AlignedResources,
    users: Users,
}

/// The directory of sysfs that describes the machine.
const SYSTEM: &str = "/sys/devices/system";

impl NodeResources {
    /// Opens the cgroups and loads what pods were given before a restart.
    pub fn open(config: Arc<NodeConfig>, facts: SharedFacts, pods: PodTable) -> Self {
        let aligned = AlignedResources::open(&config, Path::new(SYSTEM));
        let users = Users::load(&config);
        let cgroups = Hierarchy::open(&config.cgroup_root)
            .inspect_err(|error| tracing::warn!(error = %causes::chain(error), "cgroup hierarchy not available, pods run without cgroups of their own"))
            .ok();
        let capacity = facts.read().clone();
        let limited = match &cgroups {
            Some(cgroups) => all_pods::limit(cgroups, &config, &capacity),
            None => all_pods::limited_by_version_1(&config.cgroup_root),
        };
        let swap = if config.limited_swap && limited.swap { all_pods::swap_total() } else { 0 };
        NodeResources { config, facts, pods, cgroups, limited, swap, aligned, users }
    }

    /// The node's resources and properties now.
    pub fn facts(&self) -> NodeFacts {
        self.facts.read().clone()
    }

    /// Reads the node's labels again if those that are known keep the pod away.
    pub async fn refresh_labels(&self, pod: &Pod, client: &kube::Client) {
        node_labels::refresh(pod, &self.config.name, client, &self.facts).await;
    }

    /// What pods may use.
    pub fn allocatable(&self) -> BTreeMap<String, i64> {
        self.facts.read().allocatable.clone()
    }

    /// Memory of the machine.
    pub fn memory(&self) -> NodeMemory {
        NodeMemory { total: self.facts.read().memory, swap: self.swap }
    }

    /// How a container's limit of cpus is enforced.
    pub fn cpu_quotas(&self, uid: &str, container: &str) -> CpuQuotas {
        let own = self.aligned.cpus.as_ref().map(|cpus| cpus.exclusive(uid, container));
        self.config.cpu_quotas.unless(own.is_some_and(|own| !own.is_empty()))
    }

    /// How the limit of cpus of the pod as a whole is enforced: a quota would limit a container with cpus of its own.
    pub fn cpu_quotas_of_pod(&self, uid: &str) -> CpuQuotas {
        let has_own = self.aligned.cpus.as_ref().is_some_and(|cpus| cpus.has_exclusive(uid));
        self.config.cpu_quotas.unless(has_own)
    }

    /// Sizes of huge pages that are limited, in bytes.
    pub fn page_sizes(&self) -> &BTreeSet<i64> {
        &self.limited.page_sizes
    }

    /// Whether new pods are rejected because the machine goes down.
    pub fn is_shutting_down(&self) -> bool {
        self.facts.read().shutting_down
    }

    /// Makes the pod's cgroup and sets its limits.
    pub fn ensure_cgroup(&self, pod: &Pod) -> Result<(), PodCgroupError> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let limits = NodeLimits {
            max_pids: self.config.max_pids,
            page_sizes: &self.limited.page_sizes,
            cpu_quotas: self.cpu_quotas_of_pod(spec::uid(pod)),
        };
        cgroup::ensure(cgroups, &self.config.cgroup_parent, pod, limits)
    }

    /// Limits of the pod's cgroup as they are.
    pub fn pod_limits(&self, pod: &Pod) -> PodLimits {
        let cgroups = self.cgroups.as_ref();
        cgroups.map(|cgroups| cgroup::limits_of(cgroups, &self.config.cgroup_parent, pod)).unwrap_or_default()
    }

    /// Changes limits of the pod's cgroup; those that are zero stay.
    pub fn change_pod_limits(
        &self,
        pod: &Pod,
        to: &cri::LinuxContainerResources,
    ) -> Result<(), PodCgroupError> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        cgroup::change(cgroups, &self.config.cgroup_parent, pod, to)
    }

    /// Removes the pod's cgroup. It must have no processes.
    pub async fn remove_cgroup(&self, uid: &str) -> Result<(), PodCgroupError> {
        match &self.cgroups {
            Some(cgroups) => cgroup::remove(cgroups, &self.config.cgroup_parent, uid).await,
            None => Ok(()),
        }
    }

    /// Sets the cpu weights of the QoS classes from the current pods.
    pub fn update_qos_weights(&self) {
        if let Some(cgroups) = &self.cgroups {
            qos::write_weights(cgroups, &self.config.cgroup_parent, &self.pods.all_allocated());
        }
    }

    /// Removes limits that only cgroups of version 2 have: a runtime on a host with version 1 refuses them.
    pub fn keep_supported(&self, limits: &mut cri::LinuxContainerResources) {
        if self.cgroups.is_none() {
            limits.unified.clear();
        }
        if !self.limited.swap {
            limits.unified.remove(resources::SWAP_MAX);
        }
    }

    /// Whether the node gives pods exclusive cpus.
    pub fn has_exclusive_cpus(&self) -> bool {
        self.aligned.cpus.is_some()
    }

    /// The cpus of a container; `None` if it may use all.
    pub fn cpuset(&self, uid: &str, container: &str) -> Option<String> {
        self.aligned.cpus.as_ref().map(|cpus| cpus.of(uid, container))
    }

    /// The NUMA nodes of a container's memory; empty if it may use all.
    pub fn memory_nodes(&self, uid: &str, container: &str) -> String {
        self.aligned.memory.as_ref().map(|memory| memory.of(uid, container)).unwrap_or_default()
    }

    /// The exclusive cpus of a container.
    pub fn exclusive_cpus(&self, uid: &str, container: &str) -> Vec<i64> {
        let own = self.aligned.cpus.as_ref().map(|cpus| cpus.exclusive(uid, container)).unwrap_or_default();
        own.into_iter().map(i64::from).collect()
    }

    /// The cpus that the node can give exclusively.
    pub fn allocatable_cpus(&self) -> Vec<i64> {
        let all = self.aligned.cpus.as_ref().map(Cpus::allocatable).unwrap_or_default();
        all.into_iter().map(i64::from).collect()
    }

    /// Gives a pod exclusive cpus, where the node has them and the pod asks for them. Cpus that are aligned with other resources
    /// are given later, with these.
    pub fn take_cpus(&self, pod: &Pod) -> Result<(), CpusError> {
        let Some(cpus) = self.aligned.cpus.as_ref().filter(|_| !self.aligned.is_on()) else { return Ok(()) };
        if cpus.admit(pod)? {
            self.refresh_shared_cpus();
        }
        Ok(())
    }

    /// Gives the containers of a pod devices, and what is aligned with them. `survived`: the pod ran before the agent started. On an
    /// error the caller releases the pod.
    pub async fn allocate(&self, pod: &Pod, devices: &Devices, survived: bool) -> Result<(), AlignError> {
        if self.aligned.allocate(pod, devices, survived).await? {
            self.refresh_shared_cpus();
        }
        Ok(())
    }

    /// Releases the pod's memory, and its exclusive cpus to the shared pool.
    pub fn release(&self, uid: &str) {
        if let Some(memory) = &self.aligned.memory {
            memory.release(uid);
        }
        if self.aligned.cpus.as_ref().is_some_and(|cpus| cpus.release(uid)) {
            self.refresh_shared_cpus();
        }
    }

    /// The shared cpus changed: every pod applies its resources again.
    fn refresh_shared_cpus(&self) {
        for uid in self.pods.uids() {
            self.pods.send(&uid, Message::Verdicts);
        }
    }

    /// The pod's range of user ids; the same every time.
    pub fn users(&self, pod: &Pod) -> Result<cri::UserNamespace, UsersError> {
        self.users.of(&self.config, spec::uid(pod))
    }

    /// The pod is gone, its record too.
    pub fn release_users(&self, uid: &str) {
        self.users.release(uid);
    }
}
