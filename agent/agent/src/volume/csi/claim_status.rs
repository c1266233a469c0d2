//! What the status of a claim says about an expansion on this node. Pure.

use coracle_fields::core::v1;
use coracle_fields::make;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// Conditions that belong to an expansion.
const RESIZE: [&str; 4] = ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];

/// How far an expansion has got.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The driver is about to be called.
    Begins,
    /// The file system has this size.
    Done(Quantity),
    /// The driver failed; tried again.
    Failed(String),
    /// The driver cannot do it; the claim has to ask for less.
    Infeasible(String),
}

/// A merge patch of the claim, for exactly the version that was read.
pub(super) fn patch(claim: &PersistentVolumeClaim, outcome: &Outcome, now: Timestamp) -> Value {
    let mut patch = make!(part v1::PersistentVolumeClaim {
        metadata: { resource_version: claim.metadata.resource_version.as_deref().unwrap_or_default() },
    });
    let old = claim.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut edit = patch.edit();
    let mut status = edit.status().section();
    match outcome {
        Outcome::Begins => state(&mut status, json!("NodeResizeInProgress")),
        Outcome::Done(size) => {
            status.capacity().put(json!({"storage": size}));
            state(&mut status, Value::Null);
            let rest = old.into_iter().filter(|one| !RESIZE.contains(&one.type_.as_str()));
            status.conditions().put(json!(rest.collect::<Vec<_>>()));
        }
        Outcome::Failed(message) => status.conditions().put(failed(old, message, now)),
        Outcome::Infeasible(message) => {
            state(&mut status, json!("NodeResizeInfeasible"));
            status.conditions().put(failed(old, message, now));
        }
    }
    patch.into_value()
}

fn state(status: &mut coracle_fields::Edit<'_, v1::PersistentVolumeClaimStatus>, state: Value) {
    status.allocated_resource_statuses().put(json!({"storage": state}));
}

/// The conditions with that of a failure.
fn failed(mut all: Vec<PersistentVolumeClaimCondition>, message: &str, now: Timestamp) -> Value {
    let message = Some(format!("failed to expand pvc with {message}"));
    match all.iter_mut().find(|one| one.type_ == "NodeResizeError" && one.status == "True") {
        Some(one) => one.message = message,
        None => {
            all.retain(|one| one.type_ != "NodeResizeError");
            all.push(PersistentVolumeClaimCondition {
                type_: "NodeResizeError".into(),
                status: "True".into(),
                message,
                last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or_default())),
                ..PersistentVolumeClaimCondition::default()
            });
        }
    }
    json!(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_claim_is_told_how_far_it_is() {
        let other = json!({"type": "Other", "status": "True"});
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"conditions": [other, {"type": "FileSystemResizePending", "status": "True"}]},
        }))
        .unwrap();
        let at = |outcome: Outcome| patch(&claim, &outcome, Timestamp::UNIX_EPOCH);
        assert_eq!(
            at(Outcome::Begins),
            json!({"metadata": {"resourceVersion": "7"},
                "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}})
        );
        assert_eq!(
            at(Outcome::Done(Quantity("2Gi".into())))["status"],
            json!({"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": null},
                "conditions": [other]})
        );
        let failed = at(Outcome::Infeasible("no room".into()));
        assert_eq!(failed["status"]["allocatedResourceStatuses"]["storage"], "NodeResizeInfeasible");
        assert_eq!(
            failed["status"]["conditions"][2],
            json!({"type": "NodeResizeError", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z",
                "message": "failed to expand pvc with no room"})
        );
    }
}
