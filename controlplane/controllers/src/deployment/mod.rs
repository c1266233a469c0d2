//! Deployments: ReplicaSets per template, rolled out and back.

// What the plan sees.
pub mod view;
// How large each ReplicaSet may be now.
mod scale;
// Revisions and their annotations.
mod revision;
// Counts and conditions.
mod status;
// The next step.
pub mod plan;
#[cfg(test)]
mod plan_tests;

use super::adoption;
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::apps::v1;
use coracle_informer::index::{Owned, Pods};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector::Selector;
use coracle_informer::setup::Setup;
use coracle_informer::template;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use plan::{Action, Plan};
use serde_json::{Value, json};
use std::sync::Arc;
use view::{Deployment, HASH, REVISION, Set};

const NAME: &str = "deployment-controller";

struct Deployments {
    deployments: Resource,
    sets: Resource,
    owned: Owned,
    pods: Arc<Pods>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let deployments = setup.resource(NAME, "apps", "deployments");
    let sets = setup.resource(NAME, "apps", "replicasets");
    let pods_kind = setup.resource(NAME, "", "pods");
    let pods = setup.pods();
    let owned = Owned::by_owner(sets.cache.clone());
    let sets_cache = sets.cache.clone();
    let mut handlers = setup.enqueue_on_change(&deployments);
    handlers.owned_or_matching(&sets.kind, &sets.cache, "Deployment");
    // Recreate waits for the last old pod to be gone.
    handlers.on_change(&pods_kind.kind, &pods_kind.cache, move |change, add| {
        let (Some(pod), None) = (change.old, change.new) else { return };
        let set = coracle_informer::pod::controller_of(pod).filter(|o| o.kind == "ReplicaSet");
        let set = set.and_then(|o| sets_cache.get(&pod.meta.namespace, &o.name));
        if let Some(owner) = set.as_deref().and_then(coracle_informer::pod::controller_of) {
            add(Name::new(&pod.meta.namespace, &owner.name));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Deployments { deployments, sets, owned, pods }, &queue, 5);
}

#[async_trait]
impl Controller for Deployments {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(object) = self.deployments.get(name) else { return Ok(Requeue::No) };
        let deployment = Deployment::read(&object)?;
        let selector = deployment.selector();
        if selector.is_empty() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.deployments.warn(&object, "SelectingAll", message);
            return Ok(Requeue::No);
        }
        let sets = self.claim(&object, &selector).await?;
        let old_pods = !deployment.rolling() && self.old_pods(&deployment, &sets);
        let Plan { actions, again } = plan::plan(&deployment, sets, old_pods, now);
        for action in actions {
            self.execute(&deployment, action, now).await?;
        }
        Ok(again.into())
    }
}

impl Deployments {
    async fn claim(&self, deployment: &Arc<Object>, selector: &Selector) -> Result<Vec<Set>, Failure> {
        let mut sets = self.owned.of(&deployment.meta.uid);
        sets.extend(self.owned.orphans(&deployment.meta.namespace));
        let mut mine = Vec::new();
        for set in sets {
            match adoption::plan_adoption(&deployment.meta, selector, &set) {
                adoption::Adoption::Ignore => {}
                adoption::Adoption::Keep => mine.push(Set::read(&set)?),
                adoption::Adoption::Release => {
                    adoption::release(&self.sets, &set, &deployment.meta.uid, None).await?;
                }
                adoption::Adoption::Adopt => {
                    let fresh = self.deployments.fresh(&Name::of(deployment)).await?;
                    if fresh.meta.uid == deployment.meta.uid && fresh.meta.deletion_timestamp.is_none() {
                        let reference = adoption::reference("apps/v1", "Deployment", &deployment.meta);
                        mine.push(Set::read(&adoption::adopt(&self.sets, &set, reference, None).await?)?);
                    }
                }
            }
        }
        Ok(mine)
    }

    /// Whether pods of another template are still there, ended ones aside.
    fn old_pods(&self, deployment: &Deployment, sets: &[Set]) -> bool {
        sets.iter()
            .filter(|s| !template::same_but_label(&s.spec.template, &deployment.spec.template, HASH))
            .any(|s| self.pods.owned(&s.object.meta.uid).iter().any(|p| !p.ended()))
    }

    async fn execute(&self, deployment: &Deployment, action: Action, now: Timestamp) -> Result<(), Failure> {
        let object = &deployment.object;
        match action {
            Action::Create(body, scaled) => {
                self.create(deployment, body, now).await?;
                self.tell_scaled(object, scaled);
            }
            Action::Update(body, scaled) => {
                self.sets.update(body).await?;
                self.tell_scaled(object, scaled);
            }
            Action::Delete(name) => {
                let name = Name::new(&object.meta.namespace, &name);
                if let Some(set) = self.sets.get(&name) {
                    self.sets.delete(&set).await?;
                }
            }
            Action::Revision(revision, status) => {
                let mut body = object.copy::<v1::Deployment>();
                body.edit().metadata().annotations().insert(REVISION, revision);
                body.edit().status().put(json!(status));
                self.deployments.write("status", body).await?;
            }
            Action::Status(status) => {
                // The revision written just before moved the resource version, nothing else.
                let newest = self.deployments.get(&Name::of(object));
                let Some(newest) = newest.filter(|n| n.meta.generation == object.meta.generation) else {
                    return Ok(());
                };
                self.deployments.set_status(&newest, json!(status)).await?;
            }
        }
        Ok(())
    }

    /// Says how a set was scaled, as soon as it is written: a write that follows may fail, and the next turn sees no change.
    fn tell_scaled(&self, deployment: &Object, scaled: Option<String>) {
        if let Some(sentence) = scaled {
            self.deployments.normal(deployment, "ScalingReplicaSet", sentence);
        }
    }

    /// Creates the new ReplicaSet. A name that is taken by something else is a collision of hashes: it is counted, and
    /// the next turn draws another name.
    async fn create(&self, deployment: &Deployment, body: Value, now: Timestamp) -> Result<(), Failure> {
        let namespace = &deployment.object.meta.namespace;
        let name = Name::new(namespace, v1::ReplicaSet::of(&body).metadata().name().text());
        let Err(error) = self.sets.create(namespace, body).await else { return Ok(()) };
        if error.is_already_exists() {
            let taken = self.sets.fresh(&name).await?;
            let mine = coracle_informer::pod::controller_of(&taken)
                .is_some_and(|o| o.uid == deployment.object.meta.uid);
            let same = Set::read(&taken)
                .is_ok_and(|s| template::same_but_label(&s.spec.template, &deployment.spec.template, HASH));
            if !(mine && same) {
                let mut status = deployment.status.clone();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.deployments.set_status(&deployment.object, json!(status)).await?;
            }
        } else if !error.is_namespace_terminating() {
            self.tell_create_failed(deployment, &name, &error, now).await;
        }
        Err(error.into())
    }

    async fn tell_create_failed(
        &self,
        deployment: &Deployment,
        name: &Name,
        error: &ApiError,
        now: Timestamp,
    ) {
        if let Some(status) = plan::create_failed(deployment, &error.to_string(), now) {
            // The error itself is what counts; it is returned and tried again.
            let _ = self.deployments.set_status(&deployment.object, json!(status)).await;
        }
        let message = format!("Failed to create new replica set \"{}\": {error}", name.name);
        self.deployments.warn(&deployment.object, "ReplicaSetCreateError", message);
    }
}
