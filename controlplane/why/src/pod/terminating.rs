//! Pods that are being deleted.

use super::containers::containers;
use crate::deletion;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::nodes;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_fields::View;
use coracle_fields::core::v1::{Node, Pod};

/// Seconds after the grace period in which a node may report the end.
const PATIENCE: i64 = 15;

/// Why a pod that is being deleted is still there.
pub fn explain(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let object = ObjectRef::to(pod);
    let due = pod.metadata().deletion_timestamp().text();
    let started = containers(pod).iter().any(|slot| slot.status.state().running().is_set());
    if !started
        && world.older(due, 0)
        && let Some(finding) = deletion::blocked(world, pod.metadata(), &object)
    {
        return vec![finding];
    }
    if !world.older(due, PATIENCE) {
        return vec![hook_failed(world, pod).unwrap_or_else(|| in_grace(pod))];
    }
    let node = pod.spec().node_name().text();
    match world.get::<Node>("", node) {
        Found::Yes(found) if !nodes::is_ready(found) => {
            let mut findings = vec![node_gone(pod, &format!("node {node}, which is not ready"))];
            findings.extend(follow(world, trail, ObjectRef::to(found)));
            findings
        }
        Found::No if !node.is_empty() => vec![node_gone(pod, &format!("node {node}, which does not exist"))],
        _ => vec![hook_failed(world, pod).unwrap_or_else(|| stuck(world, pod))],
    }
}

fn in_grace(pod: View<'_, Pod>) -> Finding {
    let grace = pod.metadata().deletion_grace_period_seconds().or(30);
    let cause = format!("the pod is being deleted, and its containers have {grace} s to end");
    let hooks = containers(pod).into_iter().filter(|slot| slot.spec.lifecycle().pre_stop().is_set());
    let hooks: Vec<&str> = hooks.map(|slot| slot.name()).collect();
    Finding::new(ObjectRef::to(pod), Trouble::GracePeriod, cause)
        .evidence("deleted at the latest", pod.metadata().deletion_timestamp().text())
        .evidence("containers with a preStop hook", hooks.join(", "))
        .remedy("wait, or reduce spec.terminationGracePeriodSeconds")
}

/// A `preStop` hook that failed or took the whole grace period.
fn hook_failed(world: &World, pod: View<'_, Pod>) -> Option<Finding> {
    let object = ObjectRef::to(pod);
    let event = events::last(&world.events(&object), &["FailedPreStopHook"], |_| true)?;
    let cause = "a preStop hook failed while the pod was being deleted";
    let finding = Finding::new(object, Trouble::PreStopHook, cause)
        .since(events::first_seen(event))
        .with([events::evidence(event)])
        .remedy("correct lifecycle.preStop of the container; its command must exist in the image and end within the grace period");
    Some(finding)
}

fn node_gone(pod: View<'_, Pod>, node: &str) -> Finding {
    let object = ObjectRef::to(pod);
    let cause = format!("nobody can confirm that the pod has ended: it is on {node}");
    let command = format!("kubectl delete {} --force --grace-period=0", object.arguments());
    Finding::new(object, Trouble::TerminationNodeGone, cause)
        .since(pod.metadata().deletion_timestamp().text())
        .evidence("field spec.nodeName", pod.spec().node_name().text())
        .remedy(format!(
            "bring the node back; if it is certain that its containers do not run any more: {command}"
        ))
}

fn stuck(world: &World, pod: View<'_, Pod>) -> Finding {
    let object = ObjectRef::to(pod);
    let running = containers(pod).into_iter().filter(|slot| slot.status.state().running().is_set());
    let running: Vec<&str> = running.map(|slot| slot.name()).collect();
    let node = pod.spec().node_name().text();
    let cause = "the grace period is over, and the node has not reported that the pod has ended";
    let all = world.events(&object);
    let event = events::last(
        &all,
        &["FailedKillPod", "FailedUnmount", "FailedUnMount", "FailedStopPodSandbox"],
        |_| true,
    );
    Finding::new(object, Trouble::TerminationStuck, cause)
        .since(pod.metadata().deletion_timestamp().text())
        .evidence("containers that still run", running.join(", "))
        .with(event.map(events::evidence))
        .remedy(format!("look at the log of the kubelet or agent on node {node}"))
}
