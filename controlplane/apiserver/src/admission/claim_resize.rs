//! PersistentVolumeClaimResize: allows a claim to grow only if it is bound and its storage class allows volume
//! expansion.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
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

    async fn validate(&self, at: &mut Attributes<'_>, claim: &Value) -> Result<(), ApiError> {
        let Some(old) = at.old.filter(|_| at.operation == Operation::Update) else { return Ok(()) };
        let size = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]);
        if !at.is("", "persistentvolumeclaims") || size(claim) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(at.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let same = !class.is_empty() && old["spec"]["storageClassName"] == class;
        let found = if same { at.find("storage.k8s.io", "storageclasses", "", class).await } else { None };
        if found.is_some_and(|class| class.value()["allowVolumeExpansion"] == true) {
            return Ok(());
        }
        Err(at.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ))
    }
}
