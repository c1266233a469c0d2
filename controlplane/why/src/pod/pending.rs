//! Pods without a node: gates and claims first, then the nodes.

use super::{condition, scheduling};
use crate::claims;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{PersistentVolumeClaim, Pod};

/// Why a pod has no node.
pub fn explain(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    if !pod.spec().node_name().text().is_empty() {
        return Vec::new();
    }
    let gates: Vec<&str> = pod.spec().scheduling_gates().items().map(|gate| gate.name().text()).collect();
    if !gates.is_empty() {
        return vec![gated(pod, &gates)];
    }
    let of_claims = of_claims(world, pod, trail);
    if !of_claims.is_empty() {
        return of_claims;
    }
    scheduling::explain(world, pod, trail)
}

fn gated(pod: View<'_, Pod>, gates: &[&str]) -> Finding {
    let cause = format!("the pod is not scheduled while it has the scheduling gate {}", gates.join(", "));
    Finding::new(ObjectRef::to(pod), Trouble::SchedulingGated, cause)
        .since(pod.metadata().creation_timestamp().text())
        .evidence("field spec.schedulingGates", gates.join(", "))
        .evidence("condition PodScheduled", condition(pod, "PodScheduled").map_or("", |c| c.message().text()))
        .remedy("the controller that set the gate has to remove it from spec.schedulingGates")
}

/// Names of the claims that a pod uses; those of ephemeral volumes are named after pod and volume.
fn claim_names(pod: View<'_, Pod>) -> Vec<String> {
    let name = pod.metadata().name().text();
    let names = pod.spec().volumes().items().filter_map(|volume| {
        if volume.ephemeral().is_set() {
            return Some(format!("{name}-{}", volume.name().text()));
        }
        volume.persistent_volume_claim().claim_name().filled().map(str::to_owned)
    });
    names.collect()
}

fn of_claims(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let namespace = pod.metadata().namespace().text();
    let mut findings = Vec::new();
    for name in claim_names(pod) {
        match world.get::<PersistentVolumeClaim>(namespace, &name) {
            Found::No => findings.push(missing_claim(world, pod, &name)),
            Found::Yes(claim) if !claims::is_bound(claim) => {
                findings.extend(follow(world, trail, ObjectRef::to(claim)));
            }
            _ => {}
        }
    }
    findings
}

fn missing_claim(world: &World, pod: View<'_, Pod>, name: &str) -> Finding {
    let namespace = pod.metadata().namespace().text();
    let names = world.names(&Resource::of::<PersistentVolumeClaim>(), namespace);
    let cause = format!("the PersistentVolumeClaim {name} does not exist{}", suggestion(name, names));
    Finding::new(ObjectRef::to(pod), Trouble::ClaimMissing, cause)
        .since(pod.metadata().creation_timestamp().text())
        .evidence("field spec.volumes", format!("persistentVolumeClaim.claimName: {name}"))
        .evidence("condition PodScheduled", condition(pod, "PodScheduled").map_or("", |c| c.message().text()))
        .remedy(format!(
            "create the claim {name} in namespace {namespace}, or correct claimName in the pod's volumes"
        ))
}
