//! ReplicaSets and ReplicationControllers: as many pods as wanted.

// The next step.
pub mod plan;

use super::replicas::{PodControl, pod_of};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_informer::index::{Owned, Pods};
use coracle_informer::informer::Name;
use coracle_informer::pod::{Pod, controller_of};
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::wire::Wire;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use plan::{Scale, Spec};
use std::sync::Arc;

struct Replicas {
    name: &'static str,
    control: PodControl,
    pods: Arc<Pods>,
    /// The sets themselves by owner: those of one Deployment share the loss when one shrinks.
    siblings: Owned,
}

/// Starts the controllers of both kinds.
pub fn start(setup: &mut Setup<'_>) {
    start_one(setup, "replicaset-controller", ("apps", "replicasets"), "ReplicaSet");
    start_one(setup, "replication-controller", ("", "replicationcontrollers"), "ReplicationController");
}

fn start_one(setup: &mut Setup<'_>, name: &'static str, (group, plural): (&str, &str), kind: &'static str) {
    let owners = setup.resource(name, group, plural);
    let pods = setup.resource(name, "", "pods");
    let index = setup.pods();
    let mut handlers = setup.enqueue_on_change(&owners);
    handlers.owned_or_matching(&pods.kind, &pods.cache, kind);
    let queue = handlers.queue.clone();
    let siblings = Owned::by_owner(owners.cache.clone());
    let control = PodControl { owners, pods, finalizer: None };
    setup.run(Replicas { name, control, pods: index, siblings }, &queue, 5);
}

#[async_trait]
impl Controller for Replicas {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(set) = self.control.owners.get(name) else { return Ok(Requeue::No) };
        let Wire { spec, status }: Wire<Spec> = set.typed()?;
        if spec.selector.is_empty() {
            return Ok(Requeue::No);
        }
        let mut pods = self.pods.owned(&set.meta.uid);
        if set.meta.deletion_timestamp.is_none() {
            pods.extend(
                self.pods.orphans(&name.namespace).into_iter().filter(|p| spec.selector.matches(p.labels())),
            );
        }
        let mine = self.control.claim(&set, &spec.selector, pods).await?;
        let active: Vec<&Pod> = mine.iter().map(|p| &**p).filter(|p| p.active()).collect();
        let terminating = (self.control.owners.kind.group == "apps")
            .then(|| mine.iter().filter(|p| p.terminating() && !p.ended()).count());
        let outcome = match set.meta.deletion_timestamp {
            None => self.scale(&set, &spec, &active, now).await,
            Some(_) => Ok(()),
        };
        let failure = outcome
            .as_ref()
            .err()
            .map(|(reason, error)| plan::Failure { reason, message: error.to_string() });
        let next =
            plan::plan_status(&status, set.meta.generation, &spec, (&active, terminating), failure, now);
        self.control.owners.set_status(&set, next).await?;
        outcome.map_err(|(_, error)| error)?;
        Ok(plan::next_available(&active, spec.min_ready_seconds, now).into())
    }
}

impl Replicas {
    async fn scale(
        &self,
        set: &Arc<Object>,
        spec: &Spec,
        active: &[&Pod],
        now: Timestamp,
    ) -> Result<(), (&'static str, Failure)> {
        let related = if active.len() > usize::try_from(spec.replicas).unwrap_or(0) {
            self.related(set)
        } else {
            Vec::new()
        };
        match plan::plan_scale(spec.replicas, active, &related, now) {
            Scale::Stay => Ok(()),
            Scale::Create(count) => {
                let pod = pod_of(PodTemplateSpec::of(&spec.template), set, self.control.reference(set));
                let (_, result) = self.control.create_all(set, vec![pod; count]).await;
                result.map_err(|e| ("FailedCreate", e.into()))
            }
            Scale::Delete(names) => {
                let gone = active.iter().filter(|p| names.iter().any(|n| n == p.name())).map(|p| &*p.object);
                self.control.delete_all(set, gone).await.map_err(|e| ("FailedDelete", e.into()))
            }
        }
    }

    /// The pods of all sets with the same owner.
    fn related(&self, set: &Object) -> Vec<Pod> {
        let uids: Vec<String> = match controller_of(set) {
            Some(owner) => self.siblings.of(&owner.uid).iter().map(|s| s.meta.uid.clone()).collect(),
            None => vec![set.meta.uid.clone()],
        };
        uids.iter().flat_map(|uid| self.pods.owned(uid)).map(|p| (*p).clone()).collect()
    }
}
