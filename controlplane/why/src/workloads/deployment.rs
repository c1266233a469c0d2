//! Deployments.

use super::{owned_by, scaled_to_zero};
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::Resource;
use crate::refusal;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::apps::v1::{Deployment, DeploymentCondition, ReplicaSet};

const REVISION: &str = "deployment.kubernetes.io/revision";
const CONTROLLER: &str = "deployment-controller";

fn condition<'a>(deployment: View<'a, Deployment>, name: &str) -> Option<View<'a, DeploymentCondition>> {
    deployment.status().conditions().items().find(|condition| condition.type_() == name)
}

/// Why a Deployment does not have the pods that it should have.
pub fn explain(world: &World, deployment: View<'_, Deployment>, trail: &[ObjectRef]) -> Vec<Finding> {
    let (spec, status) = (deployment.spec(), deployment.status());
    let wanted = spec.replicas().or(1);
    if wanted == 0 {
        return vec![scaled_to_zero(deployment)];
    }
    let current = status.observed_generation().or(0) >= deployment.metadata().generation().or(0);
    let whole = status.updated_replicas().or(0) >= wanted && status.available_replicas().or(0) >= wanted;
    if whole && current {
        return Vec::new();
    }
    if spec.paused().flag() {
        return vec![paused(deployment)];
    }
    let mut findings = Vec::new();
    // The newest ReplicaSet is the rollout; older ones matter when it has nothing to say.
    for set in sets(world, deployment) {
        findings = follow(world, trail, ObjectRef::to(set));
        if !findings.is_empty() {
            break;
        }
    }
    // Pods of which nothing says why they are not ready do not say either why the rollout does not go on.
    if findings.iter().all(|finding| finding.trouble == Trouble::Unexplained) {
        findings.extend(stalled(world, deployment));
        findings.extend(refused(world, deployment));
    }
    findings
}

/// The ReplicaSets with pods, or that should have some, the newest first.
fn sets<'a>(world: &'a World, deployment: View<'_, Deployment>) -> Vec<View<'a, ReplicaSet>> {
    let all = owned_by::<ReplicaSet>(world, deployment.metadata()).into_iter();
    let mut sets: Vec<View<'a, ReplicaSet>> =
        all.filter(|set| set.spec().replicas().or(1) > 0 || set.status().replicas().or(0) > 0).collect();
    let revision = |set: &View<'_, ReplicaSet>| {
        set.metadata().annotations().key(REVISION).text().parse::<i64>().unwrap_or(0)
    };
    sets.sort_by_key(|set| std::cmp::Reverse(revision(set)));
    sets
}

fn paused(deployment: View<'_, Deployment>) -> Finding {
    let object = ObjectRef::to(deployment);
    let command = format!("kubectl rollout resume {}", object.arguments());
    Finding::new(object, Trouble::DeploymentPaused, "the Deployment is paused: changes are not rolled out")
        .since(
            condition(deployment, "Progressing").map_or("", |condition| condition.last_update_time().text()),
        )
        .evidence("field spec.paused", "true")
        .remedy(command)
}

/// A write for the Deployment that admission refuses: neither condition nor Event tells of it.
fn refused(world: &World, deployment: View<'_, Deployment>) -> Option<Finding> {
    let (object, resource) = (ObjectRef::to(deployment), Resource::of::<Deployment>());
    let (written, refusal) = refusal::of_controller(world, &resource, &object, CONTROLLER)?;
    let (verb, answer) = (&refusal.verb, refusal.answer());
    let cause = format!("the last request of {CONTROLLER} to {verb} {written} was refused {answer}");
    let at = refusal.at.map(|at| at.to_string()).unwrap_or_default();
    let decider = refusal.by.as_deref().unwrap_or("admission");
    let finding = Finding::new(object, Trouble::WebhookRefuses, cause)
        .evidence("timeline", format!("{verb} {written} at {at}: refused {answer}"))
        .remedy(format!("have {decider} allow what system:serviceaccount:kube-system:{CONTROLLER} writes"));
    Some(finding)
}

/// A rollout without progress of which no pod says why.
fn stalled(world: &World, deployment: View<'_, Deployment>) -> Option<Finding> {
    let object = ObjectRef::to(deployment);
    let failure = condition(deployment, "ReplicaFailure").filter(|condition| condition.status() == "True");
    if let Some(failure) = failure {
        let message = (failure.message().text(), failure.last_transition_time().text());
        return super::creation::explain(world, &object, Some(message));
    }
    let progressing = condition(deployment, "Progressing")?;
    if progressing.reason() != "ProgressDeadlineExceeded" {
        return None;
    }
    let limit = deployment.spec().progress_deadline_seconds().or(600);
    let (ready, wanted) = (deployment.status().ready_replicas().or(0), deployment.spec().replicas().or(1));
    let cause = format!("the rollout has made no progress for {limit} s: {ready} of {wanted} pods are ready");
    let remedy = format!("kubectl rollout undo {}", object.arguments());
    let finding = Finding::new(object, Trouble::ProgressDeadline, cause)
        .since(progressing.last_transition_time().text())
        .evidence("condition Progressing", progressing.message().text())
        .remedy(remedy);
    Some(finding)
}
