//! PersistentVolumeClaimResize: allows a claim to grow only if it is bound and its storage class allows volume
//! expansion.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::PersistentVolumeClaim;
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{Schema as _, View, storage_class};
use coracle_kinds::registry::usage::quantity;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The plugin.
pub struct PersistentVolumeClaimResize;

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && grows(at)
    }

    async fn validate(&self, at: &mut Attributes<'_>, claim: &Value) -> Result<(), ApiError> {
        let Some(old) = at.old.filter(|_| grows(at)) else { return Ok(()) };
        let (claim, old) = (PersistentVolumeClaim::of(claim), PersistentVolumeClaim::of(old));
        let size = |claim: View<'_, PersistentVolumeClaim>| {
            quantity(&claim.spec().resources().requests().key("storage").as_value())
        };
        if size(claim) <= size(old) {
            return Ok(());
        }
        if old.status().phase() != "Bound" {
            return Err(at.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = storage_class::of_claim(claim).unwrap_or_default();
        let same = !class.is_empty() && storage_class::of_claim(old) == Some(class);
        let found = if same { at.find("storage.k8s.io", "storageclasses", "", class).await } else { None };
        if found.is_some_and(|class| class.doc().view::<StorageClass>().allow_volume_expansion().flag()) {
            return Ok(());
        }
        Err(at.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ))
    }
}

/// Whether a request may change the size of a claim that has, or could have, a volume.
fn grows(at: &Attributes<'_>) -> bool {
    at.operation == Operation::Update && !at.is_new() && at.is("", "persistentvolumeclaims")
}
