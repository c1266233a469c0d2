//! The storage class of claims and volumes: that of an annotation from before Kubernetes 1.6, or that of the spec.

use crate::View;
use crate::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// The annotation, which counts more than the spec.
pub const ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The class of a claim, empty for none; nothing when the claim leaves it to the default class.
pub fn of_claim<'a>(claim: View<'a, PersistentVolumeClaim>) -> Option<&'a str> {
    claim.metadata().annotations().key(ANNOTATION).get().or(claim.spec().storage_class_name().get())
}

/// The class of a volume, empty for none.
pub fn of_volume<'a>(volume: View<'a, PersistentVolume>) -> &'a str {
    volume.metadata().annotations().key(ANNOTATION).or(volume.spec().storage_class_name().text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema as _;
    use serde_json::json;

    #[test]
    fn the_annotation_counts_more_than_the_spec() {
        let plain = json!({"spec": {"storageClassName": "new"}});
        let both =
            json!({"metadata": {"annotations": {ANNOTATION: "old"}}, "spec": {"storageClassName": "new"}});
        let none = json!({"metadata": {"annotations": {ANNOTATION: ""}}});
        let class =
            |object| (of_claim(PersistentVolumeClaim::of(object)), of_volume(PersistentVolume::of(object)));
        assert_eq!(class(&plain), (Some("new"), "new"));
        assert_eq!(class(&both), (Some("old"), "old"));
        assert_eq!(class(&none), (Some(""), ""));
        assert_eq!(class(&json!({})), (None, ""));
    }
}
