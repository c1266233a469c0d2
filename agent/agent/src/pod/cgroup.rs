//! The pod's cgroup with its resource limits: created before the sandbox, removed after it.

use coracle_cli::causes::chain;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

use super::{huge_pages, resources, spec};
use coracle_engine::cgroup::{Error, Hierarchy};
use coracle_engine::limits;

/// Errors of the pod's cgroup.
#[derive(Debug, thiserror::Error)]
pub enum PodCgroupError {
    /// It was not made, or its limits were not set.
    #[error("unable to ensure pod container exists: {}", chain(.0))]
    Ensure(#[source] Error),
    /// It was not removed.
    #[error("{}", chain(.0))]
    Remove(#[source] Error),
}

/// Makes the cgroup and sets its limits. Limits of controllers that the kernel does not give are left out. `page_sizes` are
/// those of huge pages, in bytes.
pub fn ensure(
    hierarchy: &Hierarchy,
    parent: &str,
    pod: &Pod,
    max_pids: i64,
    page_sizes: &BTreeSet<i64>,
) -> Result<(), PodCgroupError> {
    let path = format!("{parent}{}", resources::cgroup(pod));
    let cgroup = hierarchy.ensure(&path).map_err(PodCgroupError::Ensure)?;
    let spec = spec::spec(pod);
    let mut resources = resources::pod(&spec);
    resources.hugepage_limits = huge_pages::of_pod(&spec, page_sizes);
    let mut limits = limits::files(&resources);
    if max_pids > 0 {
        limits.insert("pids.max".to_owned(), max_pids.to_string());
    }
    cgroup.apply(limits, hierarchy.controllers()).map_err(PodCgroupError::Ensure)?;
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
