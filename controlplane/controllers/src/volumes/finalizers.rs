//! Finalizers of claims and volumes.

use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use serde_json::Value;

/// Keeps a volume while it is bound.
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

pub(super) fn add_finalizer(body: &mut Value, finalizer: &str) {
    PartialObjectMetadata::edit(body).metadata().finalizers().push(finalizer);
}

pub(super) fn remove_finalizer(body: &mut Value, finalizer: &str) {
    PartialObjectMetadata::edit(body).metadata().finalizers().retain(|f| f != finalizer);
}
