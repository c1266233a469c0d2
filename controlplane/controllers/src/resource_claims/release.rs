//! Claims that nobody uses any more: pods that have ended are removed from `reservedFor`, and with the last one the allocation.

use async_trait::async_trait;
use coracle_fields::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use coracle_fields::{Made, fields};
use coracle_informer::informer::Name;
use coracle_informer::pod::controller_of;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_kinds::object::Object;
use jiff::Timestamp;
use std::sync::Arc;

use super::is_done;

/// Keeps a claim while it is allocated.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fields! {
    /// Who uses a claim.
    pub(super) struct Consumer: ResourceClaimConsumerReference {
        api_group: String,
        resource: String,
        pub(super) name: String,
        pub(super) uid: String,
    }
}

/// Who uses a claim.
pub(super) fn consumers(claim: &Made<ResourceClaim>) -> Vec<Consumer> {
    claim.view().status().reserved_for().read().unwrap_or_default()
}

/// Releases claims.
pub(super) struct Release {
    pub(super) pods: Resource,
    pub(super) claims: Resource,
}

#[async_trait]
impl Controller for Release {
    fn name(&self) -> &'static str {
        "resource-claim-release"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(mut claim) = self.claims.get(name) else { return Ok(Requeue::No) };
        let body = claim.copy::<ResourceClaim>();
        let (all, mut ended) = (consumers(&body), vec![]);
        for consumer in &all {
            if !self.uses(&claim, consumer).await? {
                ended.push(consumer.uid.clone());
            }
        }
        let is_unused = ended.len() == all.len();
        let is_deleted = claim.meta.deletion_timestamp.is_some();
        if !ended.is_empty() || (is_unused && is_deleted && body.view().status().allocation().is_set()) {
            claim = self.claims.write("status", released(body, &ended)).await?;
        }
        let body = claim.copy::<ResourceClaim>();
        let is_held = body.view().metadata().finalizers().has(FINALIZER);
        let is_free = !body.view().status().allocation().is_set();
        if is_held && is_free && (!ended.is_empty() || (is_unused && is_deleted)) {
            let mut body = body;
            body.edit().metadata().finalizers().retain(|finalizer| finalizer.text() != FINALIZER);
            claim = self.claims.update(body).await?;
        }
        if is_unused && claim.meta.deletion_timestamp.is_none() && self.is_left_over(&claim) {
            self.claims.delete(&claim).await?;
        }
        Ok(Requeue::No)
    }
}

impl Release {
    /// Whether a consumer may still use the claim. Those that are not pods are kept.
    async fn uses(&self, claim: &Object, consumer: &Consumer) -> Result<bool, Failure> {
        if !consumer.api_group.is_empty() || consumer.resource != "pods" {
            return Ok(true);
        }
        let name = Name::new(&claim.meta.namespace, &consumer.name);
        let pod = match self.pods.get(&name) {
            Some(pod) => Some(pod),
            // The cache may lag behind another server.
            None => match self.pods.fresh(&name).await {
                Ok(pod) => Some(pod),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            },
        };
        Ok(pod.is_some_and(|pod| pod.meta.uid == consumer.uid && !is_done(&pod)))
    }

    /// Whether a claim was made for a pod that does not need it any more. When the pod itself is gone, garbage collection
    /// removes it.
    fn is_left_over(&self, claim: &Arc<Object>) -> bool {
        let Some(owner) = controller_of(claim).filter(|owner| owner.kind == "Pod") else { return false };
        let pod = self.pods.get(&Name::new(&claim.meta.namespace, &owner.name));
        pod.is_some_and(|pod| pod.meta.uid != owner.uid || is_done(&pod))
    }
}

/// The claim without these consumers, and without its allocation and the status of its devices if none is left.
fn released(mut body: Made<ResourceClaim>, ended: &[String]) -> Made<ResourceClaim> {
    let is_ours = body.view().metadata().finalizers().has(FINALIZER);
    let mut edit = body.edit();
    let mut status = edit.status();
    status.reserved_for().retain(|consumer| !ended.iter().any(|uid| consumer.uid().text() == uid));
    let is_unused = status.view().reserved_for().is_empty();
    if is_unused {
        status.reserved_for().clear();
    }
    if is_unused && is_ours {
        status.allocation().clear();
        status.devices().clear();
    }
    body
}
