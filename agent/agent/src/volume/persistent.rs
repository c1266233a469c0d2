//! PersistentVolumeClaims onto volumes that are paths of this node: hostPath and local.

use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{host_path, local_path};
use crate::config::NodeConfig;
use crate::pod::affinity;

/// Where a claim's data is, and whether it is read-only.
pub struct Claimed {
    /// Path on this node.
    pub path: PathBuf,
    /// The volume itself is read-only.
    pub read_only: bool,
    /// Whether a pod's group owns its files.
    pub takes_group: bool,
}

/// Follows a claim to its path.
pub async fn resolve(
    client: &kube::Client,
    namespace: &str,
    claim: &str,
    node_labels: &BTreeMap<String, String>,
    node: &NodeConfig,
) -> Result<Claimed, String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = claims
        .get_opt(claim)
        .await
        .map_err(|error| format!("failed to get PVC {namespace}/{claim}: {error}"))?
        .ok_or_else(|| format!("persistentvolumeclaim {claim:?} not found"))?;
    if object.metadata.deletion_timestamp.is_some() {
        tracing::debug!(namespace, claim, "claim is being deleted while a pod uses it");
    }
    let bound = object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = object.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty() && bound);
    let name = name.ok_or_else(|| {
        format!("PVC {namespace}/{claim} has non-bound phase (\"Pending\") or empty volumeName")
    })?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes.get(&name).await.map_err(|error| format!("failed to get PV {name}: {error}"))?;
    let spec = volume.spec.unwrap_or_default();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required
        && !affinity::matches(required, node_labels, &node.name)
    {
        return Err(format!("PersistentVolume {name} has node affinity that does not match this node"));
    }
    let only_read =
        spec.access_modes.iter().flatten().all(|mode| mode == "ReadOnlyMany") && spec.access_modes.is_some();
    let provisioner = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    if let Some(host) = spec.host_path {
        let path = Path::new(&host.path);
        if provisioner.is_some_and(|by| by == PROVISIONER) && local_path::is_own(&node.storage_dirs, path) {
            local_path::ensure(path).map_err(|error| error.to_string())?;
        }
        host_path::check(&host.path, host.type_.as_deref().unwrap_or_default())?;
        return Ok(Claimed { path: host.path.into(), read_only: only_read, takes_group: false });
    }
    if let Some(local) = spec.local {
        if nix::sys::stat::stat(Path::new(&local.path)).is_err() {
            return Err(format!("path {:?} does not exist", local.path));
        }
        return Ok(Claimed { path: local.path.into(), read_only: only_read, takes_group: true });
    }
    Err(format!("no volume plugin matched name: {name}"))
}
