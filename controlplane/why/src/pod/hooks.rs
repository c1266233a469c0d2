//! `postStart` hooks and readiness gates.

use super::containers::containers;
use super::{condition, is_ready};
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Event, Pod};

/// Seconds for which a failed hook is worth a line.
const RECENT: i64 = 600;
/// Seconds after which a hook that has not ended is taken for one that hangs.
const HANGS: i64 = 60;

/// The container of an event about a failed hook, and `: ` with what the event says about it.
pub(super) fn failure(event: View<'_, Event>) -> (Option<&str>, String) {
    let place = event.involved_object().field_path().text();
    let container = place.split_once('{').and_then(|(_, name)| name.strip_suffix('}'));
    let said = event.message().text().split_once("Hook failed: ").map_or("", |(_, text)| text.trim());
    let line = said.lines().next().unwrap_or_default();
    (container, if line.is_empty() { String::new() } else { format!(": {line}") })
}

/// Hooks that fail or hang when containers start.
pub fn explain_start(world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let hooked: Vec<_> =
        containers(pod).into_iter().filter(|slot| slot.spec.lifecycle().post_start().is_set()).collect();
    if hooked.is_empty() || is_ready(pod) {
        return Vec::new();
    }
    let object = ObjectRef::to(pod);
    let all = world.events(&object);
    if let Some(event) = events::last(&all, &["FailedPostStartHook"], |_| true)
        && world.age(events::last_seen(event)).is_none_or(|age| age < RECENT)
    {
        let cause = match failure(event) {
            (Some(name), text) => {
                format!("the postStart hook of container {name} fails, and the container is killed{text}")
            }
            (None, text) => format!("a postStart hook fails, and its container is killed{text}"),
        };
        // Not every agent says in the event what the hook said.
        let waits = hooked.iter().find(|slot| slot.waiting() == "PostStartHookError");
        let said = waits.map_or("", |slot| slot.status.state().waiting().message().text());
        let finding = Finding::new(object, Trouble::PostStartHook, cause)
            .since(events::first_seen(event))
            .with([events::evidence(event)])
            .evidence("container waits: PostStartHookError", said)
            .remedy("correct lifecycle.postStart of the container: its command must exist in the image and succeed");
        return vec![finding];
    }
    // While the hook runs, the container counts as being created.
    let hanging =
        hooked.iter().find(|slot| matches!(slot.waiting(), "ContainerCreating" | "PodInitializing"));
    let started =
        events::last(&all, &["Started"], |_| true).or_else(|| events::last(&all, &["Created"], |_| true));
    match (hanging, started) {
        (Some(slot), Some(event)) if world.older(events::last_seen(event), HANGS) => {
            let cause = format!("the postStart hook of {} has not ended yet", slot.title());
            let finding = Finding::new(object, Trouble::PostStartHook, cause)
                .since(events::last_seen(event))
                .with([events::evidence(event)])
                .remedy("correct lifecycle.postStart of the container: a container is not running before its hook has ended");
            vec![finding]
        }
        _ => Vec::new(),
    }
}

/// Readiness gates that nobody has fulfilled.
pub fn explain_gates(_world: &World, pod: View<'_, Pod>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let ready = condition(pod, "ContainersReady").is_some_and(|condition| condition.status() == "True");
    if is_ready(pod) || !ready {
        return Vec::new();
    }
    let gates = pod.spec().readiness_gates().items().map(|gate| gate.condition_type().text());
    let open = gates.filter(|gate| condition(pod, gate).is_none_or(|condition| condition.status() != "True"));
    let open: Vec<&str> = open.collect();
    if open.is_empty() {
        return Vec::new();
    }
    let names = open.join(", ");
    let said = open.iter().map(|gate| match condition(pod, gate) {
        None => format!("{gate}: no such condition"),
        Some(found) => {
            format!("{gate}={} {}", found.status().text(), found.message().text()).trim_end().to_owned()
        }
    });
    let said: Vec<String> = said.collect();
    let cause = format!("all containers are ready, but the readiness gate {names} is not fulfilled");
    let finding = Finding::new(ObjectRef::to(pod), Trouble::ReadinessGate, cause)
        .since(
            condition(pod, "ContainersReady").map_or("", |condition| condition.last_transition_time().text()),
        )
        .evidence("conditions of the pod", said.join("; "))
        .remedy(format!("the controller of the gate has to set the condition {names} of the pod to True"));
    vec![finding]
}
