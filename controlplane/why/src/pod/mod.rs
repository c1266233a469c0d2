//! Pods: from waiting for a node to running and ready.

// Phase and conditions.
mod status;
// Containers with their statuses.
mod containers;
// Being deleted.
mod terminating;
// Ended for good.
mod ended;
// Waiting for a node.
mod pending;
// Reasons against a node.
mod verdict;
// Which nodes could run a pod, and what speaks against each.
mod fit;
// What nodes lack.
mod resources;
// Pods that are resized.
mod resize;
// Amounts of resources.
mod amounts;
// Taints, labels and affinity of nodes.
mod placement;
// Rules about other pods.
mod neighbours;
// Waiting for a scheduler, or for what it lacks.
mod scheduling;
// Registries of images.
mod registry;
// Images.
mod images;
// Credentials of registries.
mod pull_secrets;
// ConfigMaps, Secrets and what else a container needs to be created.
mod config;
// Volumes, network and sandbox.
mod setup;
// Containers that end.
mod crash;
// Permissions that a container lacks.
mod permissions;
// Init containers that do not end.
mod init;
// Probes.
mod probes;
// Lifecycle hooks and readiness gates.
mod hooks;

pub use placement::{labels as label_verdicts, tolerates};
pub use status::{condition, has_ended, is_ready};

use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::nodes;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_fields::View;
use coracle_fields::core::v1::{Node, Pod};

type Step = fn(&World, View<'_, Pod>, &[ObjectRef]) -> Vec<Finding>;

/// What is looked at while a pod is wanted, in the order of its life. The first step that finds something is the root.
const STEPS: [Step; 11] = [
    pending::explain,
    on_node,
    images::explain,
    config::explain,
    setup::explain,
    hooks::explain_start,
    probes::explain_restarts,
    crash::explain,
    init::explain,
    probes::explain_readiness,
    hooks::explain_gates,
];

/// Seconds that a pod may take to become ready before it is worth a line.
const PATIENCE: i64 = 60;

/// Why a pod is not as it should be.
pub fn explain(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    if pod.metadata().deletion_timestamp().is_set() {
        return terminating::explain(world, pod, trail);
    }
    match pod.status().phase().text() {
        "Succeeded" => return Vec::new(),
        "Failed" => return ended::explain(world, pod, trail),
        _ => {}
    }
    let mut found = STEPS.iter().map(|step| step(world, pod, trail));
    found.find(|findings| !findings.is_empty()).unwrap_or_else(|| unexplained(world, pod))
}

/// The trouble of the node that the pod runs on.
fn on_node(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let name = pod.spec().node_name().text();
    if is_ready(pod) || name.is_empty() {
        return Vec::new();
    }
    match world.get::<Node>("", name) {
        Found::Yes(node) if !nodes::is_ready(node) => follow(world, trail, ObjectRef::to(node)),
        Found::No => {
            let cause = format!("the pod is bound to node {name}, which does not exist");
            let names = world.list::<Node>(None).items;
            let names: Vec<&str> = names.iter().map(|node| node.metadata().name().text()).collect();
            let finding = Finding::new(ObjectRef::to(pod), Trouble::NodeNameMissing, cause)
                .since(pod.metadata().creation_timestamp().text())
                .evidence("field spec.nodeName", name)
                .evidence("nodes of the cluster", names.join(", "));
            vec![finding.remedy(format!(
                "delete the pod and leave spec.nodeName to the scheduler: kubectl delete {}",
                ObjectRef::to(pod).arguments()
            ))]
        }
        _ => Vec::new(),
    }
}

fn unexplained(world: &World, pod: View<'_, Pod>) -> Vec<Finding> {
    let created = pod.metadata().creation_timestamp().text();
    if is_ready(pod) || !world.older(created, PATIENCE) {
        return Vec::new();
    }
    let object = ObjectRef::to(pod);
    let ready = condition(pod, "Ready");
    let message = ready.map_or("", |ready| ready.message().text());
    let cause = "the pod is not ready, and nothing that was looked at says why";
    let mut finding = Finding::new(object.clone(), Trouble::Unexplained, cause)
        .since(ready.map_or(created, |ready| ready.last_transition_time().text()))
        .evidence("phase", pod.status().phase().text())
        .evidence("condition Ready", message);
    let events = world.events(&object);
    let warnings = events.iter().rev().filter(|event| event.type_() == "Warning").take(3);
    finding = finding.with(warnings.map(|event| crate::events::evidence(*event)));
    vec![finding]
}
