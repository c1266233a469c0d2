//! PersistentVolumeClaims onto volumes: paths of this node (hostPath and local), and volumes of storage drivers.

use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::csi::CsiVolume;
use super::host_path::{self, HostPathError};
use super::{FileError, local_path};
use crate::config::NodeConfig;
use crate::pod::{affinity, spec};

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
    /// The claim is being deleted, and nothing keeps it until its pods have ended.
    #[error("PVC {namespace}/{claim} is being deleted")]
    Deleted {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// The claim of an ephemeral volume belongs to something else.
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
        /// Name of the pod.
        pod: String,
    },
    /// The volume is bound to another claim.
    #[error("PersistentVolume {volume} is not bound to PVC {namespace}/{claim} of this uid")]
    OtherClaim {
        /// Name of the volume.
        volume: String,
        /// Namespace of the pod.
        namespace: String,
        /// Name of the claim.
        claim: String,
    },
    /// A block device is to be mounted as a directory.
    #[error("volume {volume} has volumeMode Block, but is specified in volumeMounts")]
    Block {
        /// Name of the volume in the pod.
        volume: String,
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
    /// The volume is neither `hostPath` nor `local` nor `csi`.
    #[error("no volume plugin matched name: {volume}")]
    NoPlugin {
        /// Name of the volume.
        volume: String,
    },
}

/// What a claim is bound to.
pub enum Claimed {
    /// A path of this node.
    Path(ClaimedPath),
    /// A volume of a storage driver.
    Driver(Box<CsiVolume>),
}

/// Where a claim's data is, and whether it is read-only.
pub struct ClaimedPath {
    /// Path on this node.
    pub path: PathBuf,
    /// The volume itself is read-only.
    pub read_only: bool,
    /// Whether a pod's group owns its files.
    pub takes_group: bool,
}

/// A claim that a pod has as a volume.
pub struct Wanted<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Name of the volume in the pod.
    pub volume: &'a str,
    /// Name of the claim.
    pub claim: &'a str,
    /// The claim is made for the pod, and only for it.
    pub ephemeral: bool,
}

/// What keeps a pod's containers from using a claim that is being deleted.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl Wanted<'_> {
    /// The name of the claim's volume, if the pod may use it.
    fn check_claim(&self, object: &PersistentVolumeClaim) -> Result<String, ClaimError> {
        let (namespace, claim) = (spec::namespace(self.pod).to_owned(), self.claim.to_owned());
        let is_protected = object.metadata.finalizers.iter().flatten().any(|name| name == PROTECTION);
        if object.metadata.deletion_timestamp.is_some() && !is_protected {
            return Err(ClaimError::Deleted { namespace, claim });
        }
        let mut owners = object.metadata.owner_references.iter().flatten();
        let is_owner = owners.any(|owner| owner.controller == Some(true) && owner.uid == spec::uid(self.pod));
        if self.ephemeral && !is_owner {
            return Err(ClaimError::NotOwner { namespace, claim, pod: spec::name(self.pod).to_owned() });
        }
        let is_bound = object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        let name = object.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let name = name.filter(|name| !name.is_empty() && is_bound);
        name.ok_or(ClaimError::NotBound { namespace, claim })
    }

    /// Whether the volume is the claim's, and of a mode that the pod can use.
    fn check_volume(
        &self,
        object: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), ClaimError> {
        let spec = volume.spec.as_ref();
        let bound_to = spec.and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.uid.as_ref());
        if bound_to != object.metadata.uid.as_ref() {
            return Err(ClaimError::OtherClaim {
                volume: volume.metadata.name.clone().unwrap_or_default(),
                namespace: spec::namespace(self.pod).to_owned(),
                claim: self.claim.to_owned(),
            });
        }
        let is_block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
        let pod = spec::spec(self.pod);
        let is_mounted = spec::containers(&pod).any(|(_, container)| {
            container.volume_mounts.iter().flatten().any(|mount| mount.name == self.volume)
        });
        if is_block && is_mounted {
            return Err(ClaimError::Block { volume: self.volume.to_owned() });
        }
        Ok(())
    }
}

/// Follows a claim to its path.
pub async fn resolve(
    client: &kube::Client,
    wanted: &Wanted<'_>,
    node_labels: &BTreeMap<String, String>,
    node: &NodeConfig,
) -> Result<Claimed, ClaimError> {
    let (namespace, claim) = (spec::namespace(wanted.pod), wanted.claim);
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
    let name = wanted.check_claim(&object)?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes
        .get(&name)
        .await
        .map_err(|error| ClaimError::GetVolume { volume: name.clone(), source: Box::new(error) })?;
    wanted.check_volume(&object, &volume)?;
    let spec = volume.spec.unwrap_or_default();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required
        && !affinity::matches(required, node_labels, &node.name)
    {
        return Err(ClaimError::NodeAffinity { volume: name });
    }
    let only_read =
        spec.access_modes.iter().flatten().all(|mode| mode == "ReadOnlyMany") && spec.access_modes.is_some();
    if let Some(source) = &spec.csi {
        return Ok(Claimed::Driver(Box::new(CsiVolume::persistent(&name, &spec, source, only_read))));
    }
    let provisioner = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    if let Some(host) = spec.host_path {
        let path = Path::new(&host.path);
        if provisioner.is_some_and(|by| by == PROVISIONER) && local_path::is_own(&node.storage_dirs, path) {
            local_path::ensure(path)?;
        }
        host_path::check(&host.path, host.type_.as_deref().unwrap_or_default())?;
        let path = host.path.into();
        return Ok(Claimed::Path(ClaimedPath { path, read_only: only_read, takes_group: false }));
    }
    if let Some(local) = spec.local {
        if nix::sys::stat::stat(Path::new(&local.path)).is_err() {
            return Err(ClaimError::NoPath { path: local.path });
        }
        let path = local.path.into();
        return Ok(Claimed::Path(ClaimedPath { path, read_only: only_read, takes_group: true }));
    }
    Err(ClaimError::NoPlugin { volume: name })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}}))
        .unwrap()
    }

    fn claim(metadata: Value) -> PersistentVolumeClaim {
        let mut object =
            json!({"metadata": {"uid": "c"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_claim_that_is_deleted_or_not_the_pods_own_is_not_mounted() {
        let pod = pod();
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let protected = json!({"deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubernetes.io/pvc-protection"]});
        let owner = |uid: &str, controller: bool| {
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid,
                "controller": controller}]})
        };
        let not_owner = Some("PVC ns/claim was not created for pod ns/p (pod is not owner)");
        for (metadata, ephemeral, want) in [
            (json!({}), false, None),
            (deleted, false, Some("PVC ns/claim is being deleted")),
            (protected, false, None),
            (json!({}), true, not_owner),
            (owner("other", true), true, not_owner),
            (owner("u", false), true, not_owner),
            (owner("u", true), true, None),
        ] {
            let wanted = Wanted { pod: &pod, volume: "data", claim: "claim", ephemeral };
            let got = wanted.check_claim(&claim(metadata.clone()));
            assert_eq!(got.err().map(|error| error.to_string()).as_deref(), want, "{metadata}");
        }
    }

    #[test]
    fn a_volume_of_another_claim_or_mode_is_not_mounted() {
        let pod = pod();
        for (uid, mode, volume, want) in [
            ("c", "Filesystem", "data", None),
            ("d", "Filesystem", "data", Some("PersistentVolume pv is not bound to PVC ns/claim of this uid")),
            (
                "c",
                "Block",
                "data",
                Some("volume data has volumeMode Block, but is specified in volumeMounts"),
            ),
            ("c", "Block", "unused", None),
        ] {
            let object: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "pv"},
                "spec": {"claimRef": {"uid": uid}, "volumeMode": mode}}))
            .unwrap();
            let wanted = Wanted { pod: &pod, volume, claim: "claim", ephemeral: false };
            let got = wanted.check_volume(&claim(json!({})), &object);
            assert_eq!(got.err().map(|error| error.to_string()).as_deref(), want, "{uid} {mode}");
        }
    }
}
