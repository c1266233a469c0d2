//! StorageObjectInUseProtection: adds a finalizer to claims and volumes; it is removed when they are no longer in use.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

/// The plugin.
pub struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create {
            return Ok(());
        }
        let finalizer = if at.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else if at.is("", "persistentvolumeclaims") {
            "kubernetes.io/pvc-protection"
        } else {
            return Ok(());
        };
        let mut all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !all.iter().any(|f| f == finalizer) {
            all.push(json!(finalizer));
            object["metadata"]["finalizers"] = json!(all);
        }
        Ok(())
    }
}
