//! The status of a pod, from its spec, what was observed and what was reported before. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use super::conditions::{self, ConditionFacts};
use super::containers;
use super::facts::{Resize, StatusFacts};
use super::phase::{self, Phase};
use super::sizes;
use crate::pod::plan::reset;
use crate::pod::spec::{self, Role};

/// The status of the pod now.
pub fn generate(facts: &StatusFacts<'_>) -> PodStatus {
    let mut by_role: BTreeMap<Role, Vec<ContainerStatus>> = BTreeMap::new();
    let mut counted = Vec::new();
    for (role, container) in spec::containers(&facts.spec) {
        let status = containers::status(facts, role, &container);
        if role != Role::Ephemeral {
            counted.push(status.clone());
        }
        let list = if role == Role::Sidecar { Role::Init } else { role };
        by_role.entry(list).or_default().push(status);
    }
    // A pod that was refused never had containers to speak of, now and after a restart of the agent.
    let was_terminal = facts.previous.phase.as_deref().and_then(Phase::parse).is_some_and(Phase::is_terminal);
    let refused = (facts.failure.is_some() || was_terminal) && facts.previous.container_statuses.is_none();
    if refused && facts.observed.instances.is_empty() {
        by_role.clear();
    }
    let phase = decide_phase(facts, &counted);
    let old = facts.previous;
    let same_phase = old.phase.as_deref() == Some(phase.as_str());
    let (reason, message) = match facts.failure {
        Some((reason, message)) => (Some(reason.to_owned()), Some(message.to_owned())),
        None if same_phase => (old.reason.clone(), old.message.clone()),
        None => (None, None),
    };
    let foreign =
        facts.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let mut all = conditions::conditions(&ConditionFacts {
        spec: &facts.spec,
        generation: facts.pod.metadata.generation,
        statuses: &counted,
        phase,
        sandbox: facts.observed.ready_sandbox().is_some(),
        restarting: reset::has_rule(&facts.spec).then(|| reset::is_due(&facts.spec, facts.observed)),
        previous: old.conditions.as_deref().unwrap_or_default(),
        foreign,
        now: whole_second(facts.now),
    });
    // Set once by whoever disrupts the pod, this node included.
    let known = old.conditions.iter().flatten().chain(foreign).find(|c| c.type_ == "DisruptionTarget");
    all.extend(known.cloned().or_else(|| facts.disruption.map(|message| disruption(facts, message))));
    all.extend(facts.resizes.iter().map(|resize| resize_condition(facts, resize)));
    all.extend(foreign.iter().filter(|c| !conditions::OWNED.contains(&c.type_.as_str())).cloned());
    let pod_ips = pod_ips(facts);
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason,
        message,
        conditions: Some(all),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: some_list(facts.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: some_list(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: old.qos_class.clone().or_else(|| Some(spec::qos(&facts.spec).as_str().to_owned())),
        start_time: old.start_time.clone().or_else(|| Some(Time(whole_second(facts.now)))),
        observed_generation: facts.pod.metadata.generation,
        init_container_statuses: by_role.remove(&Role::Init),
        container_statuses: by_role.remove(&Role::Regular),
        ephemeral_container_statuses: by_role.remove(&Role::Ephemeral),
        nominated_node_name: old.nominated_node_name.clone(),
        resize: None,
        resource_claim_statuses: old.resource_claim_statuses.clone(),
        extended_resource_claim_status: old.extended_resource_claim_status.clone(),
        allocated_resources: sizes::given(&facts.spec),
        resources: sizes::of_pod(&facts.spec, &facts.limits, facts.cpu_quotas),
    }
}

/// The condition of a pod that the node ended for its own sake. Pods that exceeded a limit or were refused have none.
fn disruption(facts: &StatusFacts<'_>, message: &str) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("TerminationByKubelet".into()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(whole_second(facts.now))),
        observed_generation: facts.pod.metadata.generation,
        last_probe_time: None,
    }
}

fn resize_condition(facts: &StatusFacts<'_>, resize: &Resize) -> PodCondition {
    let (kind, reason, message) = match resize {
        Resize::Pending { reason, message } => ("PodResizePending", *reason, message),
        Resize::Failing(message) => ("PodResizeInProgress", "Error", message),
    };
    let old = facts.previous.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let since = old.and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.clone()),
        last_transition_time: Some(since.unwrap_or(Time(whole_second(facts.now)))),
        observed_generation: facts.pod.metadata.generation,
        last_probe_time: None,
    }
}

/// Terminal phases are final, whoever wrote them.
fn decide_phase(facts: &StatusFacts<'_>, statuses: &[ContainerStatus]) -> Phase {
    let api = facts.pod.status.as_ref().and_then(|status| status.phase.as_deref()).and_then(Phase::parse);
    if let Some(phase) = api.filter(|phase| phase.is_terminal()) {
        return phase;
    }
    let old = facts.previous.phase.as_deref().and_then(Phase::parse);
    if let Some(phase) = old.filter(|phase| phase.is_terminal()) {
        return phase;
    }
    if facts.failure.is_some() {
        // Others take a terminal phase for the end of all containers: not before they have ended.
        let goes_on = facts.observed.alive().next().is_some();
        return if goes_on { old.unwrap_or(Phase::Running) } else { Phase::Failed };
    }
    let sandbox = facts.observed.ready_sandbox().map(|sandbox| sandbox.id.as_str());
    let started = facts.spec.containers.iter().any(|container| {
        facts.observed.latest(&container.name).is_some_and(|instance| {
            instance.started_at > 0 && (facts.ended || Some(instance.sandbox.as_str()) == sandbox)
        })
    });
    let ended = facts.ended && !spec::is_static(facts.pod);
    phase::phase(&facts.spec, statuses, ended, started)
}

fn pod_ips(facts: &StatusFacts<'_>) -> Vec<String> {
    if facts.spec.host_network == Some(true) {
        return facts.host_ips.to_vec();
    }
    match facts.observed.ready_sandbox() {
        Some(sandbox) if !sandbox.ips.is_empty() => sandbox.ips.clone(),
        _ => facts.previous.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect(),
    }
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
