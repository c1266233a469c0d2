//! StorageObjectInUseProtection: adds a finalizer to claims and volumes; it is removed when they are no longer in use.

use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The plugin.
pub struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        let protected = at.is("", "persistentvolumes") || at.is("", "persistentvolumeclaims");
        phase == Phase::Mutate && at.is_new() && protected
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if !at.is_new() {
            return Ok(());
        }
        let finalizer = if at.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else if at.is("", "persistentvolumeclaims") {
            "kubernetes.io/pvc-protection"
        } else {
            return Ok(());
        };
        if !PartialObjectMetadata::of(object).metadata().finalizers().has(finalizer) {
            PartialObjectMetadata::edit(object).metadata().finalizers().push(finalizer);
        }
        Ok(())
    }
}
