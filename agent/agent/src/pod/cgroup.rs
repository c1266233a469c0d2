//! The pod's own cgroup: made before its sandbox, with the limits of the pod as a whole, removed after it.

use k8s_openapi::api::core::v1::Pod;

use super::{resources, spec};
use coracle_engine::cgroup::Hierarchy;
use coracle_engine::limits;

/// Makes the cgroup and sets its limits. Limits of controllers that the kernel does not give are left out.
pub fn ensure(hierarchy: &Hierarchy, parent: &str, pod: &Pod, max_pids: i64) -> Result<(), String> {
    let text = |error: coracle_engine::cgroup::Error| {
        format!("unable to ensure pod container exists: {}", describe(&error))
    };
    let cgroup = hierarchy.ensure(&format!("{parent}{}", resources::cgroup(pod))).map_err(text)?;
    let mut limits = limits::files(&resources::pod(&spec::spec(pod)));
    if max_pids > 0 {
        limits.insert("pids.max".to_owned(), max_pids.to_string());
    }
    cgroup.apply(limits, hierarchy.controllers()).map_err(text)?;
    Ok(())
}

fn describe(error: &coracle_engine::cgroup::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Removes the cgroup, whichever class the pod was in. Nothing runs in it any more.
pub async fn remove(hierarchy: &Hierarchy, parent: &str, uid: &str) -> Result<(), String> {
    for class in ["guaranteed", "burstable", "besteffort"] {
        let cgroup = hierarchy
            .cgroup(&format!("{parent}/kubepods/{class}/pod{uid}"))
            .map_err(|error| error.to_string())?;
        if cgroup.path().exists() {
            cgroup.remove().await.map_err(|error| describe(&error))?;
        }
    }
    Ok(())
}
