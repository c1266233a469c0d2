//! The pod conditions the node owns. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::Phase;
use crate::pod::spec::{self, Role};

/// Condition types that the node owns; others belong to other writers.
pub const OWNED: [&str; 9] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "AllContainersRestarting",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
];

/// The ones of them that are there only while they are true.
pub const PASSING: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// What conditions are made from.
pub struct ConditionFacts<'a> {
    /// The pod's spec.
    pub spec: &'a PodSpec,
    /// The pod's generation.
    pub generation: Option<i64>,
    /// Init and regular containers.
    pub statuses: &'a [ContainerStatus],
    /// The phase.
    pub phase: Phase,
    /// A sandbox is ready.
    pub sandbox: bool,
    /// Whether all containers restart; `None` if no rule says that they ever do.
    pub restarting: Option<bool>,
    /// Conditions as they were.
    pub previous: &'a [PodCondition],
    /// Conditions of the API object, with other owners' ones.
    pub foreign: &'a [PodCondition],
    /// Now.
    pub now: Timestamp,
}

/// The node's conditions; transition times are kept where the status did not change.
pub fn conditions(facts: &ConditionFacts<'_>) -> Vec<PodCondition> {
    let containers_ready = containers_ready(facts);
    let ready = ready(facts, &containers_ready);
    let list = [
        ("PodReadyToStartContainers", answer(facts.sandbox)),
        ("Initialized", initialized(facts)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", answer(true)),
    ];
    let restarting = facts.restarting.map(|is| ("AllContainersRestarting", restarting(facts.phase, is)));
    list.into_iter().chain(restarting).map(|(kind, answer)| finish(facts, kind, answer)).collect()
}

/// Corrects the times of conditions that the server was told otherwise about (a node that was cut off has its pods told not
/// ready): one that is turned back turns now, and stays so from then on.
pub fn correct_times(held: &[PodCondition], wanted: &mut [PodCondition], now: Timestamp) {
    for condition in wanted.iter_mut().filter(|condition| OWNED.contains(&condition.type_.as_str())) {
        let Some(held) = held.iter().find(|held| held.type_ == condition.type_) else { continue };
        let newer = held.last_transition_time > condition.last_transition_time;
        if newer && held.status == condition.status {
            condition.last_transition_time = held.last_transition_time.clone();
        } else if newer {
            condition.last_transition_time = Some(Time(now));
        }
    }
}

#[derive(Clone)]
struct Answer {
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn answer(status: bool) -> Answer {
    Answer { status, reason: None, message: None }
}

fn no(reason: &'static str, message: Option<String>) -> Answer {
    Answer { status: false, reason: Some(reason), message }
}

fn finish(facts: &ConditionFacts<'_>, kind: &str, answer: Answer) -> PodCondition {
    let status = if answer.status { "True" } else { "False" };
    let old = facts.previous.iter().find(|old| old.type_ == kind && old.status == status);
    let since = old.and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: answer.reason.map(str::to_owned),
        message: answer.message,
        last_transition_time: Some(since.unwrap_or(Time(facts.now))),
        last_probe_time: None,
        observed_generation: facts.generation,
    }
}

fn restarting(phase: Phase, is_restarting: bool) -> Answer {
    match phase {
        Phase::Succeeded => no("PodCompleted", None),
        Phase::Failed => no("PodFailed", None),
        _ if is_restarting => Answer {
            status: true,
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".to_owned()),
        },
        _ => answer(false),
    }
}

fn find<'a>(facts: &'a ConditionFacts<'_>, name: &str) -> Option<&'a ContainerStatus> {
    facts.statuses.iter().find(|status| status.name == name)
}

/// A list of names as Go prints a slice.
fn names(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn containers_ready(facts: &ConditionFacts<'_>) -> Answer {
    match facts.phase {
        Phase::Succeeded => return no("PodCompleted", None),
        Phase::Failed => return no("PodFailed", None),
        _ => {}
    }
    let counted: Vec<_> = spec::containers(facts.spec)
        .filter(|(role, _)| matches!(role, Role::Regular | Role::Sidecar))
        .map(|(_, container)| container.name.clone())
        .collect();
    let unknown: Vec<&str> =
        counted.iter().map(String::as_str).filter(|name| find(facts, name).is_none()).collect();
    let unready: Vec<&str> = counted
        .iter()
        .map(String::as_str)
        .filter(|name| find(facts, name).is_some_and(|s| !s.ready))
        .collect();
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!("containers with unknown status: {}", names(&unknown)));
    }
    if !unready.is_empty() {
        messages.push(format!("containers with unready status: {}", names(&unready)));
    }
    if messages.is_empty() { answer(true) } else { no("ContainersNotReady", Some(messages.join(", "))) }
}

fn ready(facts: &ConditionFacts<'_>, containers: &Answer) -> Answer {
    if !containers.status {
        return containers.clone();
    }
    let mut messages = Vec::new();
    for gate in facts.spec.readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match facts.foreign.iter().find(|condition| &condition.type_ == kind) {
            None => messages
                .push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(condition) if condition.status != "True" => messages.push(format!(
                "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                condition.status
            )),
            Some(_) => {}
        }
    }
    if messages.is_empty() { answer(true) } else { no("ReadinessGatesNotReady", Some(messages.join(", "))) }
}

fn initialized(facts: &ConditionFacts<'_>) -> Answer {
    let inits = facts.spec.init_containers.as_deref().unwrap_or_default();
    if facts.phase == Phase::Succeeded {
        return Answer { status: true, reason: Some("PodCompleted"), message: None };
    }
    let regular_started = facts.spec.containers.iter().any(|container| {
        find(facts, &container.name).is_some_and(|status| {
            let ran = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
                state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
            };
            ran(&status.state) || ran(&status.last_state)
        })
    });
    if regular_started {
        return answer(true);
    }
    let mut incomplete = Vec::new();
    for container in inits {
        let done = find(facts, &container.name).is_some_and(|status| {
            if spec::is_sidecar(container) { status.started == Some(true) } else { status.ready }
        });
        if !done {
            incomplete.push(container.name.as_str());
        }
    }
    if incomplete.is_empty() {
        return answer(true);
    }
    no("ContainersNotInitialized", Some(format!("containers with incomplete status: {}", names(&incomplete))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_server_turned_is_turned_back_now() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let condition = |kind: &str, status: &str, second| PodCondition {
            type_: kind.into(),
            status: status.into(),
            last_transition_time: Some(Time(at(second))),
            ..PodCondition::default()
        };
        for (kind, held, wanted, want) in [
            // The node controller said False at 50; it is True again, not since 10.
            ("Ready", ("False", 50), ("True", 10), 99),
            // It was turned back at 60 and nothing happened since.
            ("Ready", ("True", 60), ("True", 10), 60),
            // Our own news.
            ("Ready", ("False", 10), ("True", 50), 50),
            ("Ready", ("True", 10), ("True", 10), 10),
            ("x/foreign", ("False", 50), ("True", 10), 10),
        ] {
            let mut all = [condition(kind, wanted.0, wanted.1)];
            correct_times(&[condition(kind, held.0, held.1)], &mut all, at(99));
            assert_eq!(all[0].last_transition_time, Some(Time(at(want))), "{kind} {held:?} {wanted:?}");
        }
    }
}
