//! The next step of a Deployment, from it and its ReplicaSets. One step never both grows and shrinks, so that every
//! state in between keeps within `maxSurge` and `maxUnavailable`, whoever dies when.

use super::view::{Deployment, HASH, REVISION, Set, SetSpec, SetStatus, Status};
use super::{revision, scale, status};
use coracle_fields::apps::v1::ReplicaSet;
use coracle_informer::conditions;
use coracle_informer::template;
use coracle_kinds::object::{Meta, Object};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create this ReplicaSet, and say so in the event `ScalingReplicaSet`.
    Create(Value, Option<String>),
    /// Replace a ReplicaSet by this, and say in the event how its size changed.
    Update(Value, Option<String>),
    /// Delete a ReplicaSet by name.
    Delete(String),
    /// Note the revision on the Deployment, in a write of this status.
    Revision(String, Status),
    /// Replace the Deployment's status.
    Status(Status),
}

/// What to write and say, and when to look again.
#[derive(Debug, Default)]
pub struct Plan {
    /// Writes, in order.
    pub actions: Vec<Action>,
    /// When time alone may change something.
    pub again: Option<Timestamp>,
}

/// Plans the next step. `old_pods` says whether pods of other templates still run, which Recreate waits for.
pub fn plan(deployment: &Deployment, mut sets: Vec<Set>, old_pods: bool, now: Timestamp) -> Plan {
    sets.sort_by(|a, b| (a.created, a.name()).cmp(&(b.created, b.name())));
    let before = sets.clone();
    let mut base = deployment.status.clone();
    let mut plan = Plan::default();
    let mut new = find_new(deployment, &sets);
    if deployment.object.meta.deletion_timestamp.is_some() {
        let told = status::counted(deployment, &base, &sets, new.map(|n| &sets[n]), now);
        plan.tell(deployment, told);
        return plan;
    }
    status::paused(deployment, &mut base, now);
    let newest_old = sets
        .iter()
        .enumerate()
        .filter(|(i, _)| Some(*i) != new)
        .map(|(_, s)| s.revision())
        .max()
        .unwrap_or(0);
    if let Some(new) = new {
        found(deployment, &mut sets[new], newest_old, &mut base, &mut plan, now);
    }
    let rescale = deployment.spec.paused || scale::scaled(deployment, sets.iter());
    if rescale {
        scale::spread(deployment, &mut sets, new);
        for set in sets.iter_mut().filter(|s| s.spec.replicas > 0) {
            revision::note_size(deployment, &mut set.annotations);
        }
    } else if deployment.rolling() {
        if new.is_none() {
            new = Some(create(deployment, &mut sets, newest_old, &mut base, &mut plan, now));
        }
        roll(deployment, &mut sets, new);
    } else {
        recreate(deployment, &mut sets, &mut new, old_pods, |sets| {
            create(deployment, sets, newest_old, &mut base, &mut plan, now)
        });
    }
    plan.resize(deployment, &before, &mut sets);
    let newest = new.map(|n| &sets[n]);
    let told = if rescale {
        status::counted(deployment, &base, &sets, newest, now)
    } else {
        status::rollout(deployment, &base, &sets, newest, now)
    };
    if deployment.spec.paused || (!rescale && status::complete(deployment, &told)) {
        let old: Vec<&Set> =
            sets.iter().enumerate().filter(|(i, _)| Some(*i) != new).map(|(_, s)| s).collect();
        plan.actions.extend(revision::beyond_history(deployment, &old).into_iter().map(Action::Delete));
    }
    if !rescale {
        plan.again = status::next_check(deployment, &told);
    }
    plan.tell(deployment, told);
    plan
}

/// The oldest set with the Deployment's template.
fn find_new(deployment: &Deployment, sets: &[Set]) -> Option<usize> {
    sets.iter().position(|s| template::same_but_label(&s.spec.template, &deployment.spec.template, HASH))
}

/// Brings what hangs on the new set up to date.
fn found(
    deployment: &Deployment,
    new: &mut Set,
    newest_old: i64,
    base: &mut Status,
    plan: &mut Plan,
    now: Timestamp,
) {
    new.annotations = revision::annotations(deployment, &new.annotations, newest_old);
    new.spec.min_ready_seconds = deployment.spec.min_ready_seconds;
    if deployment.deadline().is_some() && conditions::find(&base.conditions, status::PROGRESSING).is_none() {
        let message = format!("Found new replica set \"{}\"", new.name());
        let condition = status::condition(status::PROGRESSING, "True", "FoundNewReplicaSet", message, now);
        conditions::set(&mut base.conditions, condition);
    }
    if let Some(revision) = new.annotations.get(REVISION) {
        plan.note_revision(deployment, revision.clone(), base);
    }
}

/// Adds the set for the Deployment's template and returns its place.
fn create(
    deployment: &Deployment,
    sets: &mut Vec<Set>,
    newest_old: i64,
    base: &mut Status,
    plan: &mut Plan,
    now: Timestamp,
) -> usize {
    let replicas = scale::grown(deployment, 0, scale::present(sets));
    let body = revision::new_set(deployment, replicas, newest_old);
    let (name, _) = revision::set_name(deployment);
    if deployment.deadline().is_some() {
        let message = format!("Created new replica set \"{name}\"");
        let condition = status::condition(status::PROGRESSING, "True", "NewReplicaSetCreated", message, now);
        conditions::set(&mut base.conditions, condition);
    }
    let scaled = (replicas > 0).then(|| format!("Scaled up replica set {name} from 0 to {replicas}"));
    plan.note_revision(deployment, newest_old.saturating_add(1).to_string(), base);
    let annotations = body.view().metadata().annotations().read().unwrap_or_default();
    let meta = Meta { name, namespace: deployment.object.meta.namespace.clone(), ..Meta::default() };
    let spec = SetSpec {
        replicas,
        min_ready_seconds: deployment.spec.min_ready_seconds,
        template: body.view().spec().template().to_value(),
    };
    // Before the rest: what follows builds on it.
    plan.actions.insert(0, Action::Create(body.into_value(), scaled));
    sets.push(Set {
        object: Arc::new(Object { revision: 0, json: Default::default(), meta, fields: Box::default() }),
        annotations,
        created: Some(now),
        spec,
        status: SetStatus::default(),
    });
    sets.len() - 1
}

/// Scales the new ReplicaSet up within `maxSurge`, otherwise the old ones down within `maxUnavailable`.
fn roll(deployment: &Deployment, sets: &mut [Set], new: Option<usize>) {
    let Some(new) = new else { return };
    let wanted = deployment.spec.replicas;
    let size = sets[new].spec.replicas;
    let next = if size > wanted { wanted } else { scale::grown(deployment, size, scale::present(sets)) };
    if next != size {
        sets[new].spec.replicas = next;
        return;
    }
    let copy = sets[new].clone();
    let mut old: Vec<&mut Set> = sets
        .iter_mut()
        .enumerate()
        .filter(|(i, s)| *i != new && s.spec.replicas > 0)
        .map(|(_, s)| s)
        .collect();
    scale::shrink_old(deployment, &copy, &mut old);
}

/// First everything old goes, then the new comes.
fn recreate(
    deployment: &Deployment,
    sets: &mut Vec<Set>,
    new: &mut Option<usize>,
    old_pods: bool,
    create: impl FnOnce(&mut Vec<Set>) -> usize,
) {
    let old = |i: usize| Some(i) != *new;
    let running =
        sets.iter().enumerate().any(|(i, s)| old(i) && (s.spec.replicas > 0 || s.status.replicas > 0));
    if running || old_pods {
        for (_, set) in sets.iter_mut().enumerate().filter(|(i, _)| old(*i)) {
            set.spec.replicas = 0;
        }
        return;
    }
    let new = *new.get_or_insert_with(|| create(sets));
    sets[new].spec.replicas = deployment.spec.replicas;
}

impl Plan {
    /// Writes each set that changed; one whose size changed notes the size of the Deployment too.
    fn resize(&mut self, deployment: &Deployment, before: &[Set], sets: &mut [Set]) {
        for (old, set) in before.iter().zip(sets) {
            let (from, to) = (old.spec.replicas, set.spec.replicas);
            let mut scaled = None;
            if from != to {
                revision::note_size(deployment, &mut set.annotations);
                let way = if from < to { "up" } else { "down" };
                scaled = Some(format!("Scaled {way} replica set {} from {from} to {to}", set.name()));
            }
            let same = from == to
                && old.annotations == set.annotations
                && old.spec.min_ready_seconds == set.spec.min_ready_seconds;
            if !same {
                let mut body = set.object.copy::<ReplicaSet>();
                body.edit().metadata().annotations().set(&set.annotations);
                body.edit().spec().replicas().set(to);
                body.edit().spec().min_ready_seconds().set(set.spec.min_ready_seconds);
                self.actions.push(Action::Update(body.into_value(), scaled));
            }
        }
    }

    /// Writes the revision before the sets are resized: it does not wait for a ReplicaSet that cannot be written.
    fn note_revision(&mut self, deployment: &Deployment, revision: String, status: &Status) {
        if deployment.annotations.get(REVISION) != Some(&revision) {
            self.actions.push(Action::Revision(revision, status.clone()));
        }
    }

    fn tell(&mut self, deployment: &Deployment, status: Status) {
        let written = self.actions.iter().find_map(|action| match action {
            Action::Revision(_, status) => Some(status),
            _ => None,
        });
        if status != *written.unwrap_or(&deployment.status) {
            self.actions.push(Action::Status(status));
        }
    }
}

/// The status that tells of a ReplicaSet that could not be created.
pub fn create_failed(deployment: &Deployment, error: &str, now: Timestamp) -> Option<Status> {
    deployment.deadline()?;
    let message =
        format!("Failed to create new replica set \"{}\": {error}", revision::set_name(deployment).0);
    let mut told = deployment.status.clone();
    let condition = status::condition(status::PROGRESSING, "False", "ReplicaSetCreateError", message, now);
    conditions::set(&mut told.conditions, condition);
    (told != deployment.status).then_some(told)
}
