//! Pods that are being deleted.

use super::containers::containers;
use super::hooks;
use crate::deletion;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::nodes;
use crate::trouble::{Severity, Trouble};
use crate::world::{Found, World};
use coracle_fields::View;
use coracle_fields::core::v1::{LifecycleHandler, Node, Pod};
use coracle_proto::time::parse_time;
use jiff::Timestamp;

/// Seconds after the grace period in which a node may report the end.
const PATIENCE: i64 = 15;
/// Seconds after which a `preStop` hook is taken for what delays the end of the pod.
const HANGS: i64 = 10;

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
        let hook = hook_failed(world, pod).or_else(|| hook_runs(world, pod));
        return vec![hook.unwrap_or_else(|| in_grace(pod))];
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

/// When the deletion was asked for: the API has the time when the grace period ends.
fn asked(pod: View<'_, Pod>) -> Option<Timestamp> {
    let due = parse_time(pod.metadata().deletion_timestamp().text())?;
    let grace = pod.metadata().deletion_grace_period_seconds().or(0);
    Timestamp::from_second(due.as_second().checked_sub(grace)?).ok()
}

/// What ends a pod earlier: a shorter grace period, which only a deletion can set.
fn sooner(object: &ObjectRef) -> String {
    format!("kubectl delete {} --grace-period=1", object.arguments())
}

/// What a hook does.
fn action(hook: View<'_, LifecycleHandler>) -> String {
    if hook.exec().is_set() {
        return hook.exec().command().texts().collect::<Vec<_>>().join(" ");
    }
    match hook.sleep().is_set() {
        true => format!("sleep of {} s", hook.sleep().seconds().or(0)),
        false => format!("GET {}", hook.http_get().path().text()),
    }
}

/// A `preStop` hook that is what the pod waits for: the container gets its signal to end after the hook.
fn hook_runs(world: &World, pod: View<'_, Pod>) -> Option<Finding> {
    let begun = asked(pod)?;
    let age = world.now().as_second() - begun.as_second();
    let hooked = containers(pod)
        .into_iter()
        .find(|slot| slot.status.state().running().is_set() && slot.spec.lifecycle().pre_stop().is_set())?;
    if age < HANGS {
        return None;
    }
    let object = ObjectRef::to(pod);
    let grace = pod.metadata().deletion_grace_period_seconds().or(30);
    let cause = format!(
        "{} has a preStop hook and has not ended since the pod was deleted: the hook hangs, or the container does not end after it; \
         both are killed when the grace period of {grace} s is over",
        hooked.title()
    );
    let remedy = format!(
        "{}; correct lifecycle.preStop of the container for the next pod: it must end within the grace period",
        sooner(&object)
    );
    let mut finding = Finding::new(object, Trouble::PreStopHook, cause)
        .since(&begun.to_string())
        .evidence(
            format!("lifecycle.preStop of {}", hooked.title()),
            action(hooked.spec.lifecycle().pre_stop()),
        )
        .evidence("deleted at the latest", pod.metadata().deletion_timestamp().text())
        .remedy(remedy);
    // It is still within the time that it was given.
    finding.severity = Severity::Notice;
    Some(finding)
}

fn in_grace(pod: View<'_, Pod>) -> Finding {
    let object = ObjectRef::to(pod);
    let remedy = format!("wait, or end it sooner: {}", sooner(&object));
    let grace = pod.metadata().deletion_grace_period_seconds().or(30);
    let cause = format!("the pod is being deleted, and its containers have {grace} s to end");
    let hooks = containers(pod).into_iter().filter(|slot| slot.spec.lifecycle().pre_stop().is_set());
    let hooks: Vec<&str> = hooks.map(|slot| slot.name()).collect();
    Finding::new(object, Trouble::GracePeriod, cause)
        .since(&asked(pod).map_or_else(String::new, |time| time.to_string()))
        .evidence("deleted at the latest", pod.metadata().deletion_timestamp().text())
        .evidence("containers with a preStop hook", hooks.join(", "))
        .remedy(remedy)
}

/// A `preStop` hook that failed or took the whole grace period.
fn hook_failed(world: &World, pod: View<'_, Pod>) -> Option<Finding> {
    let object = ObjectRef::to(pod);
    let event = events::last(&world.events(&object), &["FailedPreStopHook"], |_| true)?;
    let cause = match hooks::failure(event) {
        (Some(container), text) => {
            format!("the preStop hook of container {container} failed while the pod was being deleted{text}")
        }
        (None, text) => format!("a preStop hook failed while the pod was being deleted{text}"),
    };
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
