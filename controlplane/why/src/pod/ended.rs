//! Pods that have failed for good.

use super::{condition, crash};
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::nodes;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Node, Pod};

/// Why a pod has failed.
pub fn explain(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let status = pod.status();
    let disrupted = condition(pod, "DisruptionTarget").map_or("", |condition| condition.reason().text());
    let finding = match (status.reason().text(), disrupted) {
        ("Preempting" | "Preempted", _) | (_, "PreemptionByScheduler") => preempted(world, pod),
        ("Evicted", _) | (_, "TerminationByKubelet" | "EvictionByEvictionAPI") => evicted(world, pod),
        ("DeadlineExceeded", _) => deadline(pod),
        ("NodeLost" | "Shutdown" | "NodeShutdown" | "Terminated", _) => {
            rejected(pod, "the node was shut down or lost")
        }
        (reason, _) if is_rejection(reason) => rejected(pod, "the node rejected the pod"),
        _ => return crash::explain_failed(world, pod),
    };
    vec![finding]
}

fn is_rejection(reason: &str) -> bool {
    reason.starts_with("OutOf")
        || matches!(
            reason,
            "UnexpectedAdmissionError"
                | "NodeAffinity"
                | "NodeName"
                | "NodePorts"
                | "TopologyAffinityError"
                | "AdmissionRejected"
                | "PodOSNotSupported"
                | "InvalidNodeInfo"
                | "SysctlForbidden"
                | "AppArmor"
                | "SELinux"
                | "TaintToleration"
                | "PodOSSelectorNodeLabelDoesNotMatch"
                | "DynamicResources"
                | "VolumeDevices"
                | "ProcMount"
                | "EmptyDirMedium"
                | "EnvFiles"
        )
}

fn ended_at(pod: View<'_, Pod>) -> &str {
    let disrupted =
        condition(pod, "DisruptionTarget").map(|condition| condition.last_transition_time().text());
    let ready = condition(pod, "Ready").map(|condition| condition.last_transition_time().text());
    // A pod that its node rejected at once may have none of them.
    let others = [pod.status().start_time().text(), pod.metadata().creation_timestamp().text()];
    let mut times = [disrupted, ready].into_iter().flatten().chain(others);
    times.find(|time| !time.is_empty()).unwrap_or_default()
}

fn evicted(world: &World, pod: View<'_, Pod>) -> Finding {
    let object = ObjectRef::to(pod);
    let node = pod.spec().node_name().text();
    let message = pod.status().message().text().trim();
    let why = if message.is_empty() { "no reason is given" } else { message };
    let all = world.events(&object);
    let pressure = world.get::<Node>("", node).view().map(nodes::pressures).unwrap_or_default();
    Finding::new(object, Trouble::Evicted, format!("the pod was evicted from node {node}: {why}"))
        .since(ended_at(pod))
        .with(events::last(&all, &["Evicted", "EvictedByEvictionAPI"], |_| true).map(events::evidence))
        .evidence(format!("pressure on node {node} now"), pressure.join(", "))
        .remedy("set requests that match what the containers use (memory, ephemeral-storage), or free resources of the node")
}

fn preempted(world: &World, pod: View<'_, Pod>) -> Finding {
    let object = ObjectRef::to(pod);
    let all = world.events(&object);
    let message = condition(pod, "DisruptionTarget").map_or("", |condition| condition.message().text());
    let priority = pod.spec().priority().or(0);
    let cause = format!("the pod, of priority {priority}, was preempted by one with a higher priority");
    Finding::new(object, Trouble::Preempted, cause)
        .since(ended_at(pod))
        .evidence("condition DisruptionTarget", message)
        .with(events::last(&all, &["Preempted", "Preempting"], |_| true).map(events::evidence))
        .remedy("give the pod a PriorityClass with a higher value (spec.priorityClassName), or add nodes")
}

fn deadline(pod: View<'_, Pod>) -> Finding {
    let limit = pod.spec().active_deadline_seconds().or(0);
    let cause = format!("the pod ran longer than its activeDeadlineSeconds of {limit} s");
    Finding::new(ObjectRef::to(pod), Trouble::DeadlineExceeded, cause)
        .since(ended_at(pod))
        .evidence("status", pod.status().message().text())
        .remedy("raise spec.activeDeadlineSeconds, or make the work shorter")
}

fn rejected(pod: View<'_, Pod>, what: &str) -> Finding {
    let (reason, node) = (pod.status().reason().text(), pod.spec().node_name().text());
    let message = pod.status().message().text().trim();
    let cause = format!("{what}: {reason} on node {node}: {message}");
    Finding::new(ObjectRef::to(pod), Trouble::NodeRejected, cause)
        .since(ended_at(pod))
        .evidence("status", format!("{reason}: {message}"))
        .remedy(format!(
            "delete the pod, so that its controller makes a new one: kubectl delete {}",
            ObjectRef::to(pod).arguments()
        ))
}
