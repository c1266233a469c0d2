//! PersistentVolumeClaims onto volumes that are paths of this node: hostPath and local.

use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::host_path::{self, HostPathError};
use super::{FileError, local_path};
use crate::config::NodeConfig;
use crate::pod::affinity;

/// Why a claim cannot be mounted; may change with the claim, its volume or the disk.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The API server did not answer about the claim.
    #[error("failed to get PVC {namespace}/{claim}: {source}")]
    GetClaim {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// There is no such claim.
    #[error("persistentvolumeclaim {claim:?} not found")]
    NoClaim {
        /// Name of the claim.
        claim: String,
    },
    /// The claim has no volume yet.
    #[error("PVC {namespace}/{claim} has non-bound phase (\"Pending\") or empty volumeName")]
    NotBound {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// The API server did not answer about the volume, or does not have it.
    #[error("failed to get PV {volume}: {source}")]
    GetVolume {
        /// Name of the volume.
        volume: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The volume is on other nodes.
    #[error("PersistentVolume {volume} has node affinity that does not match this node")]
    NodeAffinity {
        /// Name of the volume.
        volume: String,
    },
    /// The directory of a volume of the built-in provisioner was not made.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// The volume is a path of the host that cannot be used.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The volume is a directory that is not there.
    #[error("path {path:?} does not exist")]
    NoPath {
        /// The directory.
        path: String,
    },
    /// The volume is neither `hostPath` nor `local`.
    #[error("no volume plugin matched name: {volume}")]
    NoPlugin {
        /// Name of the volume.
        volume: String,
    },
}

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
) -> Result<Claimed, ClaimError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = claims
        .get_opt(claim)
        .await
        .map_err(|error| ClaimError::GetClaim {
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
            source: Box::new(error),
        })?
        .ok_or_else(|| ClaimError::NoClaim { claim: claim.to_owned() })?;
    if object.metadata.deletion_timestamp.is_some() {
        tracing::debug!(namespace, claim, "claim is being deleted while a pod uses it");
    }
    let bound = object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = object.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty() && bound);
    let name = name
        .ok_or_else(|| ClaimError::NotBound { namespace: namespace.to_owned(), claim: claim.to_owned() })?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes
        .get(&name)
        .await
        .map_err(|error| ClaimError::GetVolume { volume: name.clone(), source: Box::new(error) })?;
    let spec = volume.spec.unwrap_or_default();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required
        && !affinity::matches(required, node_labels, &node.name)
    {
        return Err(ClaimError::NodeAffinity { volume: name });
    }
    let only_read =
        spec.access_modes.iter().flatten().all(|mode| mode == "ReadOnlyMany") && spec.access_modes.is_some();
    let provisioner = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    if let Some(host) = spec.host_path {
        let path = Path::new(&host.path);
        if provisioner.is_some_and(|by| by == PROVISIONER) && local_path::is_own(&node.storage_dirs, path) {
            local_path::ensure(path)?;
        }
        host_path::check(&host.path, host.type_.as_deref().unwrap_or_default())?;
        return Ok(Claimed { path: host.path.into(), read_only: only_read, takes_group: false });
    }
    if let Some(local) = spec.local {
        if nix::sys::stat::stat(Path::new(&local.path)).is_err() {
            return Err(ClaimError::NoPath { path: local.path });
        }
        return Ok(Claimed { path: local.path.into(), read_only: only_read, takes_group: true });
    }
    Err(ClaimError::NoPlugin { volume: name })
}
