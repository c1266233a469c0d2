//! The pod's cgroup with its resource limits: created before the sandbox, removed after it.

use coracle_cli::causes::chain;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

use super::pod_limits::PodLimits;
use super::{huge_pages, resources, spec};
use crate::config::cpu_quotas::CpuQuotas;
use coracle_engine::cgroup::{Error, Hierarchy};
use coracle_engine::limits;
use coracle_proto::cri::LinuxContainerResources;

/// Errors of the pod's cgroup.
#[derive(Debug, thiserror::Error)]
pub enum PodCgroupError {
    /// It was not made, or its limits were not set.
    #[error("unable to ensure pod container exists: {}", chain(.0))]
    Ensure(#[source] Error),
    /// Its limits were not changed.
    #[error("limits of the pod not changed: {}", chain(.0))]
    Change(#[source] Error),
    /// It was not removed.
    #[error("{}", chain(.0))]
    Remove(#[source] Error),
}

/// Limits that the node sets, and how it enforces those of pods.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits<'a> {
    /// Processes of a pod; 0 for no limit.
    pub max_pids: i64,
    /// Sizes of huge pages, in bytes.
    pub page_sizes: &'a BTreeSet<i64>,
    /// How limits of cpus are enforced.
    pub cpu_quotas: CpuQuotas,
}

/// Makes the cgroup and sets its limits. Limits of controllers that the kernel does not give are left out.
pub fn ensure(
    hierarchy: &Hierarchy,
    parent: &str,
    pod: &Pod,
    node: NodeLimits<'_>,
) -> Result<(), PodCgroupError> {
    let path = format!("{parent}{}", resources::cgroup(pod));
    let cgroup = hierarchy.ensure(&path).map_err(PodCgroupError::Ensure)?;
    let spec = spec::spec(pod);
    let mut resources = resources::pod(&spec, node.cpu_quotas);
    resources.hugepage_limits = huge_pages::of_pod(&spec, node.page_sizes);
    let mut limits = limits::files(&resources);
    if node.max_pids > 0 {
        limits.insert("pids.max".to_owned(), node.max_pids.to_string());
    }
    cgroup.apply(limits, hierarchy.controllers()).map_err(PodCgroupError::Ensure)?;
    Ok(())
}

/// Its limits as they are; those of controllers that the kernel does not give are not known.
pub fn limits_of(hierarchy: &Hierarchy, parent: &str, pod: &Pod) -> PodLimits {
    match hierarchy.cgroup(&format!("{parent}{}", resources::cgroup(pod))) {
        Ok(cgroup) => PodLimits::read(|file| cgroup.read(file)),
        Err(_) => PodLimits::default(),
    }
}

/// Changes limits of a cgroup that is there; those that are zero stay.
pub fn change(
    hierarchy: &Hierarchy,
    parent: &str,
    pod: &Pod,
    to: &LinuxContainerResources,
) -> Result<(), PodCgroupError> {
    let cgroup =
        hierarchy.cgroup(&format!("{parent}{}", resources::cgroup(pod))).map_err(PodCgroupError::Change)?;
    cgroup.apply(limits::files(to), hierarchy.controllers()).map_err(PodCgroupError::Change)?;
    Ok(())
}

/// Removes the cgroup in any QoS class. It must have no processes.
pub async fn remove(hierarchy: &Hierarchy, parent: &str, uid: &str) -> Result<(), PodCgroupError> {
    for class in ["guaranteed", "burstable", "besteffort"] {
        let cgroup = hierarchy
            .cgroup(&format!("{parent}/kubepods/{class}/pod{uid}"))
            .map_err(PodCgroupError::Remove)?;
        if cgroup.path().exists() {
            cgroup.remove().await.map_err(PodCgroupError::Remove)?;
        }
    }
    Ok(())
}
