//! What a Deployment tells of itself: counts, availability and progress.

use super::view::{Deployment, Set, Status};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::time;
use jiff::Timestamp;

/// The condition of progress.
pub const PROGRESSING: &str = "Progressing";

/// A condition with both of its times.
pub fn condition(kind: &str, status: &str, reason: &str, message: String, now: Timestamp) -> Condition {
    let mut condition = Condition::new(kind, true, reason, message, now).status(status);
    condition.last_update_time = Some(time::seconds(now));
    condition
}

/// The counts and the condition `Available`; other conditions as they are in `base`.
pub fn counted(
    deployment: &Deployment,
    base: &Status,
    sets: &[Set],
    new: Option<&Set>,
    now: Timestamp,
) -> Status {
    let sum = |field: fn(&Set) -> i64| sets.iter().map(field).sum::<i64>();
    let available = sum(|s| s.status.available_replicas);
    let wanted = sum(|s| s.spec.replicas.into());
    let synced = sets.iter().filter(|s| s.status.observed_generation > 0);
    let terminating = synced.map(|s| s.status.terminating_replicas).sum::<Option<i64>>();
    let mut status = Status {
        observed_generation: deployment.object.meta.generation,
        replicas: sum(|s| s.status.replicas),
        updated_replicas: new.map_or(0, |s| s.status.replicas),
        ready_replicas: sum(|s| s.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (wanted - available).max(0),
        terminating_replicas: terminating,
        collision_count: base.collision_count,
        conditions: base.conditions.clone(),
    };
    let (value, reason, message) = if available >= deployment.floor().into() {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    conditions::set(&mut status.conditions, condition("Available", value, reason, message.into(), now));
    status
}

/// Whether everything wanted is there, and nothing else.
pub fn complete(deployment: &Deployment, status: &Status) -> bool {
    let wanted = i64::from(deployment.spec.replicas);
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.object.meta.generation
}

fn progressed(old: &Status, new: &Status) -> bool {
    new.updated_replicas > old.updated_replicas
        || new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

/// The status during a rollout: the counts, the condition `Progressing` and failures of the sets.
pub fn rollout(
    deployment: &Deployment,
    base: &Status,
    sets: &[Set],
    new: Option<&Set>,
    now: Timestamp,
) -> Status {
    let mut status = counted(deployment, base, sets, new, now);
    match deployment.deadline() {
        None => conditions::remove(&mut status.conditions, PROGRESSING),
        Some(deadline) => progress(deployment, base, &mut status, new, deadline, now),
    }
    let failure = |set: &Set| conditions::find(&set.status.conditions, "ReplicaFailure").cloned();
    match new.and_then(failure).or_else(|| sets.iter().find_map(failure)) {
        Some(mut failed) => {
            failed.last_update_time = failed.last_transition_time.clone();
            conditions::set(&mut status.conditions, failed);
        }
        None => conditions::remove(&mut status.conditions, "ReplicaFailure"),
    }
    status
}

fn progress(
    deployment: &Deployment,
    base: &Status,
    status: &mut Status,
    new: Option<&Set>,
    deadline: i32,
    now: Timestamp,
) {
    let current = conditions::find(&base.conditions, PROGRESSING).cloned();
    let settled = current.as_ref().is_some_and(|c| c.reason == "NewReplicaSetAvailable");
    if settled && status.replicas == status.updated_replicas {
        return;
    }
    let subject = match new {
        Some(set) => format!("ReplicaSet \"{}\"", set.name()),
        None => format!("Deployment \"{}\"", deployment.object.meta.name),
    };
    if complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        let done = condition(PROGRESSING, "True", "NewReplicaSetAvailable", message, now);
        conditions::set(&mut status.conditions, done);
    } else if progressed(&deployment.status, status) {
        let message = format!("{subject} is progressing.");
        let mut going = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
        if let Some(current) = current {
            if current.is_true() {
                going.last_transition_time = current.last_transition_time;
            }
            conditions::remove(&mut status.conditions, PROGRESSING);
        }
        conditions::set(&mut status.conditions, going);
    } else if timed_out(status, deadline, now) {
        let message = format!("{subject} has timed out progressing.");
        let late = condition(PROGRESSING, "False", "ProgressDeadlineExceeded", message, now);
        conditions::set(&mut status.conditions, late);
    }
}

fn timed_out(status: &Status, deadline: i32, now: Timestamp) -> bool {
    let Some(current) = conditions::find(&status.conditions, PROGRESSING) else { return false };
    match current.reason.as_str() {
        "NewReplicaSetAvailable" => false,
        "ProgressDeadlineExceeded" => true,
        _ => time::parse(current.last_update_time.as_deref())
            .is_some_and(|from| time::after(from, deadline.into()) < now),
    }
}

/// When to look again whether there was progress. A rollout that has ended has no deadline, whatever becomes of its pods.
pub fn next_check(deployment: &Deployment, status: &Status) -> Option<Timestamp> {
    let deadline = deployment.deadline()?;
    let current = conditions::find(&status.conditions, PROGRESSING)?;
    let has_ended = matches!(current.reason.as_str(), "ProgressDeadlineExceeded" | "NewReplicaSetAvailable");
    if has_ended || deployment.spec.paused || complete(deployment, status) {
        return None;
    }
    let from = time::parse(current.last_update_time.as_deref())?;
    Some(time::after(from, i64::from(deadline) + 1))
}

/// The condition that says whether the Deployment is paused, when it changes.
pub fn paused(deployment: &Deployment, status: &mut Status, now: Timestamp) {
    if deployment.deadline().is_none() {
        return;
    }
    let reason = conditions::find(&status.conditions, PROGRESSING).map_or("", |c| c.reason.as_str());
    let (reason, message) = match (deployment.spec.paused, reason) {
        (_, "ProgressDeadlineExceeded") => return,
        (true, r) if r != "DeploymentPaused" => ("DeploymentPaused", "Deployment is paused"),
        (false, "DeploymentPaused") => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    let new = condition(PROGRESSING, "Unknown", reason, message.into(), now);
    conditions::set(&mut status.conditions, new);
}
