//! ReplicaSets and ReplicationControllers.

use super::{creation, of_pods, scaled_to_zero};
use crate::finding::{Finding, ObjectRef};
use crate::world::World;
use coracle_fields::View;
use coracle_fields::apps::v1::ReplicaSet;
use coracle_fields::core::v1::ReplicationController;

/// Why a ReplicaSet does not have the pods that it should have.
pub fn explain(world: &World, set: View<'_, ReplicaSet>, trail: &[ObjectRef]) -> Vec<Finding> {
    let (spec, status) = (set.spec(), set.status());
    let wanted = spec.replicas().or(1);
    let has_owner = set.metadata().owner_references().items().any(|owner| owner.controller().flag());
    if wanted == 0 {
        return if has_owner { Vec::new() } else { vec![scaled_to_zero(set)] };
    }
    let missing = status.replicas().or(0) < wanted;
    let failure = status
        .conditions()
        .items()
        .find(|condition| condition.type_() == "ReplicaFailure" && condition.status() == "True");
    let message =
        failure.map(|condition| (condition.message().text(), condition.last_transition_time().text()));
    if missing && let Some(finding) = creation::explain(world, &ObjectRef::to(set), message) {
        return vec![finding];
    }
    if status.ready_replicas().or(0) < wanted { of_pods(world, set.metadata(), trail) } else { Vec::new() }
}

/// Why a ReplicationController does not have the pods that it should have.
pub fn explain_controller(
    world: &World,
    controller: View<'_, ReplicationController>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    let (spec, status) = (controller.spec(), controller.status());
    let wanted = spec.replicas().or(1);
    if wanted == 0 {
        return vec![scaled_to_zero(controller)];
    }
    if status.replicas().or(0) < wanted
        && let Some(finding) = creation::explain(world, &ObjectRef::to(controller), None)
    {
        return vec![finding];
    }
    if status.ready_replicas().or(0) < wanted {
        of_pods(world, controller.metadata(), trail)
    } else {
        Vec::new()
    }
}
