//! What the scheduler writes about claims of devices: allocations, reservations, and allocations that are given up.

use super::Writes;
use crate::devices::{ClaimDecision, EXTENDED_ANNOTATION, ExtendedClaim};
use crate::pod::PodInfo;
use coracle_client::patch::Patch;
use coracle_fields::core::v1::Pod;
use coracle_fields::make;
use coracle_fields::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use coracle_proto::time;
use serde_json::json;
use std::sync::Arc;

const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resourceclaims";
/// Keeps a claim while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a write is tried whose object changes meanwhile.
const TRIES: usize = 5;
/// The reason of an error after which trying again does not help.
const CLAIM_CHANGED: &str = "ClaimChanged";

/// A claim that has its devices and is reserved for a pod.
pub struct Reserved {
    /// The name of the claim.
    pub claim: String,
    /// Its revision.
    pub revision: u64,
}

impl Writes {
    /// Writes what was decided about a claim, and reserves it for the pod. A claim for extended resources is created before,
    /// and named in the pod's status after that.
    pub async fn reserve(&self, pod: &PodInfo, decision: &ClaimDecision) -> Result<Reserved, ApiError> {
        let Some(extended) = &decision.extended else {
            let revision = self.reserve_named(pod, decision).await?;
            return Ok(Reserved { claim: decision.claim.clone(), revision });
        };
        let mut decision = decision.clone();
        if decision.uid.is_empty() {
            let created = self.create_extended(pod, extended).await?;
            decision.claim.clone_from(&created.meta.name);
            decision.uid.clone_from(&created.meta.uid);
        }
        let revision = self.reserve_named(pod, &decision).await?;
        let status = json!({"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": decision.claim, "requestMappings": extended.mappings}}});
        let kind = &self.pods.kind;
        self.client.patch(kind, &pod.namespace, &pod.name, "status", Patch::Merge(status)).await?;
        Ok(Reserved { claim: decision.claim, revision })
    }

    /// Creates the claim for a pod's extended resources.
    async fn create_extended(
        &self,
        pod: &PodInfo,
        extended: &ExtendedClaim,
    ) -> Result<Arc<Object>, ApiError> {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": true});
        let claim = json!({
            "metadata": {
                "generateName": format!("{}-extended-resources-", pod.name),
                "annotations": {EXTENDED_ANNOTATION: "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": extended.requests}},
        });
        self.client.create(&self.client.kind(GROUP, CLAIMS), &pod.namespace, claim).await
    }

    async fn reserve_named(&self, pod: &PodInfo, decision: &ClaimDecision) -> Result<u64, ApiError> {
        let kind = self.client.kind(GROUP, CLAIMS);
        let mut conflict = None;
        for _ in 0..TRIES {
            let claim = self.client.get(&kind, &pod.namespace, &decision.claim).await?;
            match self.reserve_claim(&kind, &claim, pod, decision).await {
                Err(error) if error.is_conflict() => conflict = Some(error),
                Err(error) => return self.reserved_nevertheless(&kind, pod, decision).await.ok_or(error),
                Ok(claim) => return Ok(claim.revision),
            }
        }
        Err(conflict.unwrap_or_else(|| changed(&decision.claim, "changed too often")))
    }

    /// Says that a pod is bound when its devices are ready.
    pub fn devices_pending(&self, pod: &PodInfo, node: &str) {
        let message = format!("waiting for binding conditions for device on node {node}");
        self.note(pod, |pods, object| pods.normal(object, "BindingConditionsPending", message));
    }

    async fn reserve_claim(
        &self,
        kind: &Kind,
        claim: &Arc<Object>,
        pod: &PodInfo,
        decision: &ClaimDecision,
    ) -> Result<Arc<Object>, ApiError> {
        let name = &decision.claim;
        let mut body = claim.copy::<ResourceClaim>();
        let is_allocated = body.view().status().allocation().is_set();
        if claim.meta.uid != decision.uid || claim.meta.deletion_timestamp.is_some() {
            return Err(changed(name, "got deleted in the meantime"));
        }
        match &decision.allocation {
            Some(_) if is_allocated => return Err(changed(name, "got allocated elsewhere in the meantime")),
            None if !is_allocated => return Err(changed(name, "got deallocated elsewhere in the meantime")),
            None if is_reserved(claim, pod) => return Ok(claim.clone()),
            _ => {}
        }
        if decision.allocation.is_some() && !body.view().metadata().finalizers().has(FINALIZER) {
            body.edit().metadata().finalizers().push(FINALIZER);
            let held = self.client.update(kind, &pod.namespace, name, "", body.into_value()).await?;
            body = held.copy::<ResourceClaim>();
        }
        if let Some(allocation) = &decision.allocation {
            let mut edit = body.edit();
            let mut status = edit.status();
            status.allocation().put(allocation.clone());
            status.allocation().allocation_timestamp().set(time::now());
        }
        let consumer = make!(part ResourceClaimConsumerReference {
            resource: "pods",
            name: &pod.name,
            uid: &pod.uid,
        });
        body.edit().status().reserved_for().push(consumer);
        self.client.update(kind, &pod.namespace, name, "status", body.into_value()).await
    }

    /// After an error it is not known whether the write took effect: the claim tells.
    async fn reserved_nevertheless(
        &self,
        kind: &Kind,
        pod: &PodInfo,
        decision: &ClaimDecision,
    ) -> Option<u64> {
        let claim = self.client.get(kind, &pod.namespace, &decision.claim).await.ok()?;
        (claim.meta.uid == decision.uid && is_reserved(&claim, pod)).then_some(claim.revision)
    }

    /// Takes devices from a claim that no other pod uses, so that a pod that cannot run where they are can get others.
    pub async fn deallocate(&self, pod: &PodInfo, claim: &str, uid: &str) -> Result<(), ApiError> {
        let current = self.client.get(&self.pods.kind, &pod.namespace, &pod.name).await?;
        let doc = current.doc();
        if current.meta.uid != pod.uid || doc.view::<Pod>().spec().node_name().filled().is_some() {
            return Ok(());
        }
        let kind = self.client.kind(GROUP, CLAIMS);
        let found = self.client.get(&kind, &pod.namespace, claim).await?;
        let mut body = found.copy::<ResourceClaim>();
        let is_shared =
            body.view().status().reserved_for().items().any(|consumer| consumer.uid() != pod.uid.as_str());
        if found.meta.uid != uid || is_shared {
            return Ok(());
        }
        let mut edit = body.edit();
        let mut status = edit.status();
        status.reserved_for().clear();
        status.allocation().clear();
        status.devices().clear();
        self.client.update(&kind, &pod.namespace, claim, "status", body.into_value()).await.map(drop)
    }
}

fn is_reserved(claim: &Object, pod: &PodInfo) -> bool {
    let doc = claim.doc();
    let status = doc.view::<ResourceClaim>().status();
    status.allocation().is_set()
        && status.reserved_for().items().any(|consumer| consumer.uid() == pod.uid.as_str())
}

fn changed(claim: &str, why: &str) -> ApiError {
    ApiError::new(409, CLAIM_CHANGED, format!("claim {claim} {why}"))
}
