//! StatefulSets: pods that keep their names and their claims.

// The next step.
pub mod plan;
// Names, labels, claims.
pub mod identity;
#[cfg(test)]
mod claim_tests;

use super::history::{History, Revision, Subject};
use super::replicas::PodControl;
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::apps::v1;
use coracle_fields::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::pod::Pod;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use futures::future::try_join_all;
use jiff::Timestamp;
use plan::{Plan, Revisions, Spec, StatefulSet, ordinal};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "statefulset-controller";

struct Sets {
    control: PodControl,
    claims: Resource,
    history: History,
    pods: Arc<Pods>,
    /// Whether `maxUnavailable` counts.
    max_unavailable: bool,
}

/// The claim belongs to an earlier pod of the same name and goes with it; the next pod waits for the next claim.
#[derive(Debug, thiserror::Error)]
#[error("pvc {claim} belongs to an earlier pod {pod} and is about to be deleted")]
struct ClaimStale {
    claim: String,
    pod: String,
}

/// The claim of a pod goes away, and the pod waits for the next one.
#[derive(Debug, thiserror::Error)]
#[error("pvc {0} is being deleted")]
struct ClaimDeleted(String);

/// Starts the controller; `max_unavailable` is whether that field of StatefulSets counts.
pub fn start(setup: &mut Setup<'_>, max_unavailable: bool) {
    let owners = setup.resource(NAME, "apps", "statefulsets");
    let pods = setup.resource(NAME, "", "pods");
    let claims = setup.resource(NAME, "", "persistentvolumeclaims");
    let revisions = setup.resource(NAME, "apps", "controllerrevisions");
    let index = setup.pods();
    let mut handlers = setup.enqueue_on_change(&owners);
    handlers.owned_or_matching(&pods.kind, &pods.cache, "StatefulSet");
    handlers.owned(&revisions.kind, &revisions.cache, "StatefulSet");
    // A pod may wait until the claim of an earlier one is gone.
    let sets = owners.cache.clone();
    handlers.on_change(&claims.kind, &claims.cache, move |change, add| {
        if let (Some(gone), None) = (change.old, change.new) {
            let owner = |set: &&Arc<Object>| identity::names_claim_of(&set.meta.name, &gone.meta.name);
            sets.list(Some(&gone.meta.namespace)).iter().filter(owner).for_each(|set| add(Name::of(set)));
        }
    });
    let queue = handlers.queue.clone();
    let history = History::new(revisions, "controller.kubernetes.io/hash");
    let control = PodControl { owners, pods, finalizer: None };
    setup.run(Sets { control, claims, history, pods: index, max_unavailable }, &queue, 5);
}

#[async_trait]
impl Controller for Sets {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(set) = self.control.owners.get(name) else { return Ok(Requeue::No) };
        let StatefulSet { mut spec, status } = set.typed()?;
        if !self.max_unavailable {
            spec.update_strategy.rolling_update.max_unavailable = None;
        }
        if spec.selector.is_empty() {
            return Ok(Requeue::No);
        }
        let orphans = self.pods.orphans(&name.namespace).into_iter();
        let mut candidates = self.pods.owned(&set.meta.uid);
        candidates.extend(orphans.filter(|p| ordinal(&name.name, p.name()).is_some()));
        let mine = self.control.claim(&set, &spec.selector, candidates).await?;
        let pods: BTreeMap<i32, &Pod> =
            mine.iter().filter_map(|p| Some((ordinal(&name.name, p.name())?, &**p))).collect();

        let reference = self.control.reference(&set);
        let subject = Subject {
            owners: &self.control.owners,
            object: &set,
            selector: &spec.selector,
            reference,
            template: &spec.template,
            collisions: status.collision_count,
        };
        let (revisions, collisions) = match self.history.sync(&subject).await {
            Err(Failure::Api(error)) if error.is_namespace_terminating() => return Ok(Requeue::No),
            result => result?,
        };
        let Some(update) = revisions.last() else { return Ok(Requeue::No) };
        let current = revisions.iter().find(|r| r.name() == status.current_revision).unwrap_or(update);
        let names = Revisions { current: current.name(), update: update.name() };

        let mut again = None;
        let mut outcome = Ok(());
        if set.meta.deletion_timestamp.is_none() {
            let plan = plan::plan(&spec, &pods, names, now);
            again = plan.again;
            outcome = self.execute(&set, &spec, &revisions, plan, &pods).await;
            if outcome.is_ok() {
                outcome = self.retain(&set, &spec, &pods).await;
            }
        }
        // What was just written counts.
        let after: Vec<Arc<Pod>> = self.pods.owned(&set.meta.uid);
        let pods: BTreeMap<i32, &Pod> =
            after.iter().filter_map(|p| Some((ordinal(&name.name, p.name())?, &**p))).collect();
        let told = plan::status(&spec, set.meta.generation, &pods, names, collisions, now);
        self.control.owners.set_status(&set, told).await?;
        outcome?;
        let mut live: BTreeSet<String> =
            pods.values().filter_map(|p| p.labels().get(plan::REVISION_LABEL).cloned()).collect();
        live.extend([names.current.to_owned(), names.update.to_owned()]);
        self.history.limit(&revisions, &live, spec.revision_history_limit).await?;
        Ok(again.into())
    }
}

impl Sets {
    async fn execute(
        &self,
        set: &Arc<Object>,
        spec: &Spec,
        revisions: &[Revision],
        plan: Plan,
        pods: &BTreeMap<i32, &Pod>,
    ) -> Result<(), Failure> {
        let creations = plan
            .create
            .iter()
            .map(|(ordinal, revision)| self.create(set, spec, revisions, *ordinal, revision));
        try_join_all(creations).await?;
        // A pod that waits may wait for a claim that was deleted.
        for (ordinal, _) in pods.iter().filter(|(o, p)| p.node.is_empty() && spec.range().contains(o)) {
            self.ensure_claims(set, spec, *ordinal).await?;
        }
        for ordinal in &plan.delete {
            if let Some(pod) = pods.get(ordinal) {
                let what = format!("delete Pod {} in StatefulSet {}", pod.name(), set.meta.name);
                match self.control.pods.delete(&pod.object).await {
                    Ok(()) => {
                        self.control.owners.normal(set, "SuccessfulDelete", format!("{what} successful"));
                    }
                    Err(error) => {
                        self.control.owners.warn(
                            set,
                            "FailedDelete",
                            format!("{what} failed error: {error}"),
                        );
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        set: &Arc<Object>,
        spec: &Spec,
        revisions: &[Revision],
        ordinal: i32,
        revision: &str,
    ) -> Result<(), Failure> {
        let template =
            revisions.iter().find(|r| r.name() == revision).map_or(spec.template.clone(), Revision::template);
        self.check_claims(set, spec, ordinal)?;
        self.ensure_claims(set, spec, ordinal).await?;
        let (template, reference) = (PodTemplateSpec::of(&template), self.control.reference(set));
        let pod = identity::pod(set, spec, template, revision, ordinal, reference);
        let what = format!("create Pod {}-{ordinal} in StatefulSet {}", set.meta.name, set.meta.name);
        match self.control.pods.create(&set.meta.namespace, pod).await {
            Ok(_) => self.control.owners.normal(set, "SuccessfulCreate", format!("{what} successful")),
            Err(error) if error.is_namespace_terminating() || error.is_already_exists() => {}
            Err(error) => {
                self.control.owners.warn(set, "FailedCreate", format!("{what} failed error: {error}"));
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Refuses to create a pod whose claims go with an earlier pod of its name.
    fn check_claims(&self, set: &Arc<Object>, spec: &Spec, ordinal: i32) -> Result<(), Failure> {
        if spec.persistent_volume_claim_retention_policy.when_scaled != "Delete" {
            return Ok(());
        }
        let pod = format!("{}-{ordinal}", set.meta.name);
        for template in spec.volume_claim_templates.iter().filter_map(identity::claim_template_name) {
            let claim = identity::claim_name(template, &set.meta.name, ordinal);
            let there = self.claims.get(&Name::new(&set.meta.namespace, &claim));
            if there.is_some_and(|there| identity::belongs_to_pod(&there, &pod)) {
                return Err(Failure::of(ClaimStale { claim, pod }));
            }
        }
        Ok(())
    }

    async fn ensure_claims(&self, set: &Arc<Object>, spec: &Spec, ordinal: i32) -> Result<(), Failure> {
        if spec.volume_claim_templates.is_empty() {
            return Ok(());
        }
        let claims = {
            let doc = set.doc();
            identity::claims(set, spec, doc.view::<v1::StatefulSet>().spec().selector(), ordinal)
        };
        for claim in claims {
            let name = Name::new(&set.meta.namespace, claim.view().metadata().name().text());
            if let Some(there) = self.claims.get(&name) {
                if there.meta.deletion_timestamp.is_some() {
                    return Err(Failure::of(ClaimDeleted(name.name)));
                }
                continue;
            }
            let what = format!(
                "create Claim {} Pod {}-{ordinal} in StatefulSet {}",
                name.name, set.meta.name, set.meta.name
            );
            match self.claims.create(&set.meta.namespace, claim).await {
                Ok(_) => self.control.owners.normal(set, "SuccessfulCreate", format!("{what} success")),
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    self.control.owners.warn(set, "FailedCreate", format!("{what} failed error: {error}"));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Makes claims go with the set or with a pod, as the retention policy says.
    async fn retain(
        &self,
        set: &Arc<Object>,
        spec: &Spec,
        pods: &BTreeMap<i32, &Pod>,
    ) -> Result<(), Failure> {
        for (ordinal, pod) in pods {
            let condemned = !spec.range().contains(ordinal);
            for template in &spec.volume_claim_templates {
                let Some(template) = identity::claim_template_name(template) else { continue };
                let name =
                    Name::new(&set.meta.namespace, &identity::claim_name(template, &set.meta.name, *ordinal));
                let Some(claim) = self.claims.get(&name) else { continue };
                let policy = &spec.persistent_volume_claim_retention_policy;
                if let Some(owners) =
                    identity::claim_owners(policy, &claim, set, Some(&pod.object), condemned)
                {
                    let mut body = claim.copy::<PersistentVolumeClaim>();
                    body.edit().metadata().owner_references().put(Value::Array(owners));
                    self.claims.update(body).await?;
                }
            }
        }
        Ok(())
    }
}
