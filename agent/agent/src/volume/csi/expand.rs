//! Volumes that have grown: their file systems are expanded while pods use them, and the claim is told.
//!
//! The driver's resizer expands the volume and leaves `NodeResizePending` in the status of the claim; what is left is done here. A
//! resizer that is older leaves only a PersistentVolume that is larger than its claim.

use coracle_cli::causes;
use coracle_csi::CallError;
use coracle_csi::v1::{CapacityRange, NodeExpandVolumeRequest};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, Patch, PatchParams};

use super::claim_status::{self, Outcome};
use super::error::CsiError;
use super::mount::{CsiVolumes, Parts, Pass, call, no_driver};
use super::request;
use super::sizes::Size;
use super::volume::CsiVolume;
use crate::events::Kind;
use crate::pod::{amount, spec};

const STORAGE: &str = "storage";
/// Set by resizers whose driver has nothing to do on nodes.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// A claim and the size of its volume.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// The claim.
    pub object: PersistentVolumeClaim,
    /// `spec.capacity` of the PersistentVolume.
    pub size: Quantity,
}

/// An expansion that is left to this node.
#[derive(Clone, Debug, PartialEq)]
struct Expansion {
    to: Quantity,
    /// The claim says that a node has to act; otherwise another node has told it already.
    is_pending: bool,
}

/// What is left to do for a claim. `known` is the size of the file system on this node.
fn plan(claim: &Claim, known: i64) -> Option<Expansion> {
    let status = claim.object.status.as_ref()?;
    let state = status.allocated_resource_statuses.as_ref().and_then(|all| all.get(STORAGE));
    let allocated = status.allocated_resources.as_ref().and_then(|all| all.get(STORAGE));
    match state.map(String::as_str) {
        Some("NodeResizePending" | "NodeResizeInProgress") => {
            let to = allocated.unwrap_or(&claim.size).clone();
            return Some(Expansion { to, is_pending: true });
        }
        Some(_) => return None,
        None => {}
    }
    let actual = status.capacity.as_ref().and_then(|all| all.get(STORAGE)).map_or(0, amount::units);
    let wanted = amount::units(&claim.size);
    if allocated.is_none() && actual < wanted {
        return Some(Expansion { to: claim.size.clone(), is_pending: true });
    }
    // Several nodes have the volume, and the first has told the claim.
    let modes = claim.object.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    let is_shared = modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany"));
    let annotations = claim.object.metadata.annotations.as_ref();
    let is_needed = !annotations.is_some_and(|all| all.contains_key(NOT_REQUIRED));
    (is_shared && is_needed && known < wanted && actual >= wanted)
        .then(|| Expansion { to: claim.size.clone(), is_pending: false })
}

impl CsiVolumes {
    /// Expands the file system of a volume that has grown. A pod that starts waits for it, unless the driver can do it only while
    /// nobody uses the volume; one that runs goes on.
    pub async fn expand(
        &self,
        pod: &Pod,
        volume: &CsiVolume,
        claim: &Claim,
        pass: Pass,
    ) -> Result<(), CsiError> {
        let (parts, unique) = (&self.0, volume.key.unique());
        let known = parts.sizes.of(&unique, amount::units(&claim.size));
        let Some(expansion) = plan(claim, known.bytes) else { return Ok(()) };
        if known.refused == amount::units(&expansion.to) && pass == Pass::Again {
            return Ok(());
        }
        let _volume = parts.volumes.lock(&unique).await;
        let done = parts.expand(pod, volume, claim, &expansion).await;
        let Err(error) = done else { return Ok(()) };
        let text = format!("MountVolume.NodeExpandVolume failed for volume {:?} : {error}", volume.name);
        parts.events.pod(pod, Kind::Warning, "VolumeResizeFailed", &text);
        parts.events.record(claim_reference(&claim.object), Kind::Warning, "VolumeResizeFailed", &text);
        if is_in_use(&error) {
            parts.sizes.change(&unique, |size| size.refused = amount::units(&expansion.to));
            return Ok(());
        }
        match pass {
            Pass::First => Err(error),
            Pass::Again => {
                tracing::warn!(uid = spec::uid(pod), volume = volume.name, error = %causes::chain(&error), "volume not expanded, will retry");
                Ok(())
            }
        }
    }
}

impl Parts {
    async fn expand(
        &self,
        pod: &Pod,
        volume: &CsiVolume,
        claim: &Claim,
        expansion: &Expansion,
    ) -> Result<(), CsiError> {
        let registered = self.drivers.get(&volume.key.driver).ok_or_else(|| no_driver(&volume.key.driver))?;
        if !registered.capabilities.expand {
            let driver = volume.key.driver.clone();
            return if expansion.is_pending { Err(CsiError::NoExpansion { driver }) } else { Ok(()) };
        }
        let mut object = claim.object.clone();
        if expansion.is_pending {
            object = self.tell(&object, &Outcome::Begins).await?;
        }
        let uid = spec::uid(pod);
        let is_staged = self.records.staged(&volume.key).is_some();
        let staging = self.paths.staging_of(&volume.key, &volume.name, volume.is_block);
        let path = self.paths.target_of(uid, &volume.name, volume.is_block);
        let bytes = amount::units(&expansion.to);
        let request = NodeExpandVolumeRequest {
            volume_id: volume.key.handle.clone(),
            volume_path: path.to_string_lossy().into_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: if is_staged {
                staging.to_string_lossy().into_owned()
            } else {
                String::new()
            },
            volume_capability: Some(request::capability(volume, registered.capabilities, None)),
            secrets: self.secrets(volume, volume.expand_secret.as_ref()).await?,
        };
        if let Err(source) = registered.driver.expand(request).await {
            let outcome = match &source {
                error if error.is_infeasible() => Some(Outcome::Infeasible(error.to_string())),
                CallError::Refused { .. } => Some(Outcome::Failed(source.to_string())),
                // It may have taken effect.
                _ => None,
            };
            if let Some(outcome) = outcome.filter(|_| expansion.is_pending)
                && let Err(error) = self.tell(&object, &outcome).await
            {
                tracing::warn!(uid, volume = volume.name, error = %causes::chain(&error), "failed expansion not reported");
            }
            return Err(call(volume, source));
        }
        self.sizes.change(&volume.key.unique(), |size| *size = Size { bytes, refused: 0 });
        if expansion.is_pending {
            self.tell(&object, &Outcome::Done(expansion.to.clone())).await?;
        }
        let text = format!("MountVolume.NodeExpandVolume succeeded for volume {:?}", volume.name);
        self.events.pod(pod, Kind::Normal, "FileSystemResizeSuccessful", &text);
        self.events.record(claim_reference(&object), Kind::Normal, "FileSystemResizeSuccessful", &text);
        tracing::info!(uid, volume = volume.name, size = expansion.to.0, "volume expanded");
        Ok(())
    }

    /// Writes how far an expansion has got; fails if the claim has changed since it was read.
    async fn tell(
        &self,
        claim: &PersistentVolumeClaim,
        outcome: &Outcome,
    ) -> Result<PersistentVolumeClaim, CsiError> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let patch = claim_status::patch(claim, outcome, jiff::Timestamp::now());
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(|source| CsiError::ClaimStatus {
            claim: format!("{namespace}/{name}"),
            source: Box::new(source),
        })
    }
}

fn is_in_use(error: &CsiError) -> bool {
    matches!(error, CsiError::Call { source, .. } if source.is_in_use())
}

fn claim_reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        kind: Some("PersistentVolumeClaim".into()),
        api_version: Some("v1".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn claim(mode: &str, annotations: Value, status: Value) -> Claim {
        let object = json!({"metadata": {"annotations": annotations}, "spec": {"accessModes": [mode]}, "status": status});
        Claim { object: serde_json::from_value(object).unwrap(), size: Quantity("2Gi".into()) }
    }

    #[test]
    fn what_is_left_to_the_node() {
        const GIB: i64 = 1 << 30;
        let state = |state: &str, allocated: &str| {
            json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": allocated},
                "allocatedResourceStatuses": {"storage": state}})
        };
        let done = json!({"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}});
        let none = json!({});
        let not_required = json!({NOT_REQUIRED: "true"});
        for (mode, annotations, status, known, want) in [
            ("ReadWriteOnce", &none, state("NodeResizePending", "2Gi"), GIB, Some(("2Gi", true))),
            ("ReadWriteOnce", &none, state("NodeResizeInProgress", "1536Mi"), GIB, Some(("1536Mi", true))),
            ("ReadWriteOnce", &none, state("NodeResizeInfeasible", "2Gi"), GIB, None),
            ("ReadWriteOnce", &none, state("ControllerResizeInProgress", "2Gi"), GIB, None),
            // A resizer that knows no states.
            ("ReadWriteOnce", &none, json!({"capacity": {"storage": "1Gi"}}), GIB, Some(("2Gi", true))),
            ("ReadWriteOnce", &none, json!({"capacity": {"storage": "2Gi"}}), 2 * GIB, None),
            ("ReadWriteOnce", &none, done.clone(), GIB, None),
            ("ReadWriteMany", &none, done.clone(), GIB, Some(("2Gi", false))),
            ("ReadWriteMany", &none, done.clone(), 2 * GIB, None),
            ("ReadWriteMany", &not_required, done, GIB, None),
        ] {
            let got = plan(&claim(mode, annotations.clone(), status.clone()), known);
            let want = want.map(|(to, is_pending)| Expansion { to: Quantity(to.into()), is_pending });
            assert_eq!(got, want, "{mode} {annotations} {status}");
        }
    }
}
