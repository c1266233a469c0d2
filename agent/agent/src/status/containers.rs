//! States of a pod's containers as the API shows them. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, LinuxContainerUser, ResourceHealth, ResourceStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use super::facts::StatusFacts;
use super::sizes;
use crate::devices::inventory::Health;
use crate::pod::observed::{Instance, State};
use crate::pod::spec::{self, Role};

/// Status of one container.
pub fn status(facts: &StatusFacts<'_>, role: Role, container: &Container) -> ContainerStatus {
    let previous = previous(facts, &container.name);
    // Until its postStart hook has ended, a container is as it was before.
    let latest = facts
        .observed
        .latest(&container.name)
        .filter(|instance| instance.state != State::Running || !facts.hooked.contains(&container.name));
    // Its instance was removed to free the disk, or is lost: what was reported of its end stays.
    let has_ended = |old: &&ContainerStatus| old.state.as_ref().is_some_and(|s| s.terminated.is_some());
    if let (true, None, Some(old)) = (facts.ended, latest, previous.filter(has_ended)) {
        return old.clone();
    }
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        restart_count: previous.map(|old| old.restart_count).unwrap_or(0),
        started: Some(false),
        allocated_resources_status: devices(facts, &container.name),
        ..ContainerStatus::default()
    };
    match latest {
        Some(instance) => from_instance(facts, &mut status, role, container, instance),
        None => status.state = Some(without_instance(facts, previous)),
    }
    // While it waits to run again, people want to see why it is not running, and how it ended.
    let wants_start = latest.is_none_or(|instance| match instance.state {
        State::Created => true,
        State::Exited => {
            !facts.ended
                && (spec::restarts_after(&facts.spec, role, container, instance.exit_code)
                    || facts.replaced.contains(&instance.id))
        }
        _ => false,
    });
    if let (true, Some((reason, message))) = (wants_start, facts.waiting.get(&container.name)) {
        if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting(reason, message));
    }
    let last = facts.observed.previous(&container.name).filter(|instance| instance.state == State::Exited);
    if status.last_state.is_none() {
        status.last_state = match last {
            Some(instance) => Some(terminated(facts, instance)),
            // Its instance was removed: how it ended is known from what was reported.
            None if latest.is_none() => previous.and_then(|old| {
                let ended = old.state.clone().filter(|state| state.terminated.is_some() && !facts.ended);
                ended.or_else(|| old.last_state.clone())
            }),
            None => previous.and_then(|old| old.last_state.clone()),
        };
    }
    status
}

/// Devices and their health. Those of a pod that has ended are free, and what was reported of them stays.
fn devices(facts: &StatusFacts<'_>, name: &str) -> Option<Vec<ResourceStatus>> {
    let Some(own) = facts.devices.get(name) else {
        return previous(facts, name).filter(|_| facts.ended)?.allocated_resources_status.clone();
    };
    let resource = |(name, devices): (&String, &BTreeMap<String, Health>)| {
        let device = |(id, health): (&String, &Health)| ResourceHealth {
            resource_id: id.clone(),
            health: Some(health.as_str().to_owned()),
        };
        ResourceStatus { name: name.clone(), resources: Some(devices.iter().map(device).collect()) }
    };
    Some(own.iter().map(resource).collect())
}

fn previous<'a>(facts: &'a StatusFacts<'_>, name: &str) -> Option<&'a ContainerStatus> {
    let old = facts.previous;
    [&old.init_container_statuses, &old.container_statuses, &old.ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == name)
}

fn from_instance(
    facts: &StatusFacts<'_>,
    status: &mut ContainerStatus,
    role: Role,
    container: &Container,
    instance: &Instance,
) {
    status.container_id = Some(format!("{}://{}", facts.runtime, instance.id));
    status.restart_count = i32::try_from(instance.attempt).unwrap_or(i32::MAX);
    if !instance.image.is_empty() && !instance.image.starts_with("sha256:") {
        status.image = instance.image.clone();
    }
    status.image_id = instance.image_ref.clone();
    let reported = instance.resources.as_ref().filter(|_| instance.state == State::Running);
    status.allocated_resources = container.resources.as_ref().and_then(|given| given.requests.clone());
    status.resources = sizes::of_container(container, reported);
    match instance.state {
        State::Running => {
            status.state = Some(ContainerState {
                running: Some(ContainerStateRunning { started_at: time(instance.started_at) }),
                ..ContainerState::default()
            });
            let verdict = facts.verdicts.get(&instance.id).copied().unwrap_or_default();
            let started = container.startup_probe.is_none() || verdict.started == Some(true);
            let probed = container.readiness_probe.is_none() || facts.ready.contains(&instance.id);
            let counts = matches!(role, Role::Regular | Role::Sidecar);
            status.started = Some(counts && started);
            status.ready = counts && started && probed;
            status.volume_mounts = mounts(container);
            status.user = instance.user.as_ref().map(|user| ContainerUser {
                linux: Some(LinuxContainerUser {
                    uid: user.uid,
                    gid: user.gid,
                    supplemental_groups: Some(user.supplemental_groups.clone())
                        .filter(|groups| !groups.is_empty()),
                }),
            });
        }
        State::Exited => {
            status.state = Some(terminated(facts, instance));
            status.ready = role == Role::Init && instance.exit_code == 0;
        }
        State::Created | State::Unknown => status.state = Some(waiting(default_reason(facts), "")),
    }
}

/// No instance is known: it was not made yet, or it is lost.
fn without_instance(facts: &StatusFacts<'_>, previous: Option<&ContainerStatus>) -> ContainerState {
    let old = previous.and_then(|old| old.state.as_ref());
    if facts.ended && old.is_some_and(|state| state.running.is_some()) {
        return ContainerState {
            terminated: Some(ContainerStateTerminated {
                reason: Some("ContainerStatusUnknown".into()),
                message: Some("The container could not be located when the pod was terminated".into()),
                exit_code: 137,
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        };
    }
    waiting(default_reason(facts), "")
}

fn default_reason(facts: &StatusFacts<'_>) -> &'static str {
    if facts.spec.init_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        "PodInitializing"
    } else {
        "ContainerCreating"
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ContainerState::default()
    }
}

fn terminated(facts: &StatusFacts<'_>, instance: &Instance) -> ContainerState {
    let reason = match (instance.reason.as_str(), instance.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("{}://{}", facts.runtime, instance.id)),
            exit_code: instance.exit_code,
            reason: Some(reason.to_owned()),
            message: Some(instance.message.clone()).filter(|message| !message.is_empty()),
            started_at: time(instance.started_at),
            finished_at: time(instance.finished_at),
            signal: None,
        }),
        ..ContainerState::default()
    }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    Some(
        mounts
            .iter()
            .map(|mount| VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: mount.read_only,
                recursive_read_only: mount.read_only.filter(|only| *only).map(|_| {
                    match mount.recursive_read_only.as_deref() {
                        Some("Enabled") => "Enabled".to_owned(),
                        _ => "Disabled".to_owned(),
                    }
                }),
            })
            .collect(),
    )
}

fn time(nanos: i64) -> Option<Time> {
    // Whole seconds: what the API keeps, so that a status read back equals the one sent.
    Timestamp::from_second(nanos / 1_000_000_000).ok().filter(|_| nanos > 0).map(Time)
}
