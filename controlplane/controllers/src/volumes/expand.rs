//! Claims that have grown. Volumes are expanded by the driver's resizer and by nodes; here the claim is told who it waits for.

use coracle_fields::View;
use coracle_fields::core::v1;
use coracle_proto::quantity::Quantity;

/// What is said about a claim that waits.
pub(super) const MESSAGE: &str = "waiting for an external controller to expand this PVC";

/// Whether a bound claim asks for more than its volume has, and no resizer has begun.
pub(super) fn waits_for_resizer(
    claim: View<'_, v1::PersistentVolumeClaim>,
    volume: View<'_, v1::PersistentVolume>,
) -> bool {
    let size = |text: &str| text.parse::<Quantity>().ok();
    let wanted = size(claim.spec().resources().requests().key("storage").text());
    let actual = size(volume.spec().capacity().key("storage").text());
    let status = claim.status();
    let is_begun = status.allocated_resource_statuses().has_key("storage")
        || status.conditions().items().any(|condition| condition.type_() == "Resizing");
    status.phase() == "Bound"
        && wanted.zip(actual).is_some_and(|(wanted, actual)| wanted > actual)
        && !is_begun
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_waits_until_a_resizer_begins() {
        let volume = json!({"spec": {"capacity": {"storage": "1Gi"}}});
        let begun =
            json!({"phase": "Bound", "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}});
        let old = json!({"phase": "Bound", "conditions": [{"type": "Resizing", "status": "True"}]});
        for (size, status, want) in [
            ("2Gi", json!({"phase": "Bound"}), true),
            ("1024Mi", json!({"phase": "Bound"}), false),
            ("2Gi", json!({"phase": "Pending"}), false),
            ("2Gi", begun, false),
            ("2Gi", old, false),
        ] {
            let claim: Value =
                json!({"spec": {"resources": {"requests": {"storage": size}}}, "status": status});
            let got =
                waits_for_resizer(v1::PersistentVolumeClaim::of(&claim), v1::PersistentVolume::of(&volume));
            assert_eq!(got, want, "{claim}");
        }
    }
}
