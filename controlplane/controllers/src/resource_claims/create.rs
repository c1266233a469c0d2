//! Claims for pods, from templates. A claim belongs to its pod and goes with it; its name is in the pod's status.

use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use coracle_fields::{Made, Schema as _, make};
use coracle_informer::informer::Name;
use coracle_informer::pod::{controller_of, node_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use std::sync::Arc;

use super::release::consumers;
use super::{NAME, Pod, PodClaim, claims_of, is_done};
use crate::adoption;

/// Which claim of its pod a claim is.
pub(super) const ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// Longest name that a random end is added to.
const MAX_BASE: usize = 57;
/// Most consumers of a claim.
const MAX_CONSUMERS: usize = 256;

/// Why a pod has no claim.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    #[error("PodResourceClaim {claim}: resource claim template {template:?}: not found")]
    NoTemplate { claim: String, template: String },
    #[error("PodResourceClaim {claim}: create ResourceClaim: {error}")]
    Create { claim: String, error: ApiError },
}

/// Creates claims.
pub(super) struct Create {
    pub(super) pods: Resource,
    pub(super) claims: Resource,
    pub(super) templates: Resource,
}

/// What the name of a claim begins with. Long names lose a part of both, so that the claim is recognized.
pub(super) fn name_base(pod: &str, claim: &str) -> String {
    let whole = pod.len() + claim.len() + 2;
    if whole <= MAX_BASE {
        return format!("{pod}-{claim}-");
    }
    let part = |text: &str| text[..text.len() * MAX_BASE / whole].trim_end_matches(['-', '.']).to_owned();
    format!("{}-{}-", part(pod), part(claim))
}

/// The claim of a pod, by its template.
pub(super) fn plan_claim(pod: &Object, claim: &str, template: &Object) -> Made<ResourceClaim> {
    let template = template.value();
    let template = ResourceClaimTemplate::of(&template).spec();
    let mut made = make!(ResourceClaim {
        metadata: {
            generate_name: name_base(&pod.meta.name, claim),
            namespace: &pod.meta.namespace,
            labels: template.metadata().labels(),
            annotations: template.metadata().annotations(),
            owner_references: [adoption::reference("v1", "Pod", &pod.meta)],
        },
        spec: template.spec(),
    });
    made.edit().metadata().annotations().insert(ANNOTATION, claim);
    made
}

#[async_trait]
impl Controller for Create {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let pod = self.pods.get(name).filter(|pod| pod.meta.deletion_timestamp.is_none() && !is_done(pod));
        let Some(pod) = pod else { return Ok(Requeue::No) };
        let Some(uses) = claims_of(&pod) else { return Ok(Requeue::No) };
        let mut made: Vec<(String, String)> = vec![];
        for claim in &uses.spec.resource_claims {
            match self.ensure(&pod, &uses, claim).await {
                Ok(new) => made.extend(new.map(|new| (claim.name.clone(), new))),
                Err(ClaimError::Create { error, .. }) if error.is_namespace_terminating() => {
                    return Ok(Requeue::No);
                }
                Err(error) => {
                    self.pods.warn(&pod, "FailedResourceClaimCreation", error.to_string());
                    return Err(Failure::of(error));
                }
            }
        }
        if !made.is_empty() {
            self.pods.write("status", with_names(&pod, &made)).await?;
        }
        if !node_of(&pod).is_empty() {
            self.reserve(&pod, &uses).await?;
        }
        Ok(Requeue::No)
    }
}

/// The pod with the names of its new claims.
fn with_names(pod: &Arc<Object>, made: &[(String, String)]) -> Made<v1::Pod> {
    let mut body = pod.copy::<v1::Pod>();
    let mut edit = body.edit();
    let mut status = edit.status();
    let mut statuses = status.resource_claim_statuses();
    statuses.retain(|one| !made.iter().any(|(name, _)| one.name().text() == name));
    for (name, claim) in made {
        statuses.push(make!(part v1::PodResourceClaimStatus { name, resource_claim_name: claim }));
    }
    body
}

impl Create {
    /// Makes a claim unless there is one; its name if the pod's status does not have it.
    async fn ensure(&self, pod: &Object, uses: &Pod, claim: &PodClaim) -> Result<Option<String>, ClaimError> {
        let Some(template) = &claim.resource_claim_template_name else { return Ok(None) };
        let own = |object: &Object| controller_of(object).is_some_and(|owner| owner.uid == pod.meta.uid);
        if let Some(known) = uses.generated(claim) {
            // A claim that is not needed has no name.
            let Some(name) = &known.resource_claim_name else { return Ok(None) };
            let there = self.claims.get(&Name::new(&pod.meta.namespace, name));
            if there.is_some_and(|there| own(&there)) {
                return Ok(None);
            }
        }
        // It may be there already, and only its name was not written.
        let is_it = |object: &&Arc<Object>| {
            let value = object.value();
            own(object)
                && ResourceClaim::of(&value).metadata().annotations().key(ANNOTATION).text() == claim.name
        };
        if let Some(there) = self.claims.list(&pod.meta.namespace).iter().find(is_it) {
            return Ok(Some(there.meta.name.clone()));
        }
        let Some(found) = self.templates.get(&Name::new(&pod.meta.namespace, template)) else {
            let (claim, template) = (claim.name.clone(), template.clone());
            return Err(ClaimError::NoTemplate { claim, template });
        };
        let body = plan_claim(pod, &claim.name, &found);
        match self.claims.create(&pod.meta.namespace, body).await {
            Ok(created) => Ok(Some(created.meta.name.clone())),
            Err(error) => Err(ClaimError::Create { claim: claim.name.clone(), error }),
        }
    }

    /// Reserves allocated claims for a pod that was bound without the scheduler.
    async fn reserve(&self, pod: &Object, uses: &Pod) -> Result<(), Failure> {
        for name in uses.claim_names() {
            let Some(claim) = self.claims.get(&Name::new(&pod.meta.namespace, name)) else { continue };
            let mut body = claim.copy::<ResourceClaim>();
            let status = body.view().status();
            let reserved = consumers(&body);
            if !status.allocation().is_set()
                || reserved.iter().any(|consumer| consumer.uid == pod.meta.uid)
                || reserved.len() >= MAX_CONSUMERS
            {
                continue;
            }
            let consumer = make!(part ResourceClaimConsumerReference {
                resource: "pods",
                name: &pod.meta.name,
                uid: &pod.meta.uid,
            });
            body.edit().status().reserved_for().push(consumer);
            self.claims.write("status", body).await?;
        }
        Ok(())
    }
}
