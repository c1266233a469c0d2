//! Claims: bound to volumes, and protected while pods use them.

use super::fit::{self, Claim, ClaimRef, Volume};
use super::{DEFAULT_CLASS, Parts, SELECTED_NODE, add_finalizer, claims_of, read, remove_finalizer};
use async_trait::async_trait;
use coracle_informer::informer::Name;
use coracle_informer::pod::has_ended;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_kinds::object::Object;
use coracle_proto::local_path::PROVISIONER;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

const BOUND: &str = "pv.kubernetes.io/bind-completed";
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Binds claims.
pub(super) struct Claims(pub(super) Parts);

#[async_trait]
impl Controller for Claims {
    fn name(&self) -> &'static str {
        "persistentvolumeclaim-binder"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(claim) = self.0.claims.get(name) else { return Ok(Requeue::No) };
        if claim.meta.deletion_timestamp.is_some() {
            return self.unprotect(&claim).await;
        }
        if !claim.meta.finalizers.iter().any(|f| f == CLAIM_PROTECTION) {
            let mut body = claim.value();
            add_finalizer(&mut body, CLAIM_PROTECTION);
            self.0.claims.update(body).await?;
            return Ok(Requeue::No);
        }
        let spec: Claim = read(&claim)?;
        if !spec.volume_name.is_empty() {
            return self.bound(&claim, &spec).await;
        }
        let Some(class) = spec.storage_class_name.clone() else { return self.default_class(&claim).await };
        let selected = claim.value()["metadata"]["annotations"][SELECTED_NODE].as_str().map(str::to_owned);
        let row = self.0.classes.get(&Name::new("", &class)).map(|c| c.value());
        let waits = row.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer");
        if let Some(volume) = self.find(&claim, &spec, &class, waits && selected.is_none())? {
            return self.bind(&claim, &volume).await;
        }
        let Some(row) = row else {
            let message = if class.is_empty() {
                "no persistent volumes available for this claim and no storage class is set".to_owned()
            } else {
                format!("storageclass.storage.k8s.io \"{class}\" not found")
            };
            let reason = if class.is_empty() { "FailedBinding" } else { "ProvisioningFailed" };
            self.0.claims.warn(&claim, reason, message);
            return Ok(Requeue::No);
        };
        if waits && selected.is_none() {
            let message = "waiting for first consumer to be created before binding";
            self.0.claims.normal(&claim, "WaitForFirstConsumer", message);
            return Ok(Requeue::No);
        }
        if row["provisioner"] != PROVISIONER {
            let provisioner = row["provisioner"].as_str().unwrap_or_default();
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator."
            );
            self.0.claims.normal(&claim, "ExternalProvisioning", message);
            let key = "volume.kubernetes.io/storage-provisioner";
            if claim.value()["metadata"]["annotations"][key] != provisioner {
                let change = json!({"metadata": {"annotations": {key: provisioner}}});
                self.0.claims.merge(name, change).await?;
            }
            return Ok(Requeue::No);
        }
        self.provision(&claim, &spec, &row, selected.as_deref()).await
    }
}

impl Claims {
    async fn default_class(&self, claim: &Arc<Object>) -> Result<Requeue, Failure> {
        let classes = self.0.classes.all();
        let is_default = |c: &&Arc<Object>| c.value()["metadata"]["annotations"][DEFAULT_CLASS] == "true";
        let Some(class) = classes.iter().find(is_default) else { return Ok(Requeue::No) };
        let mut body = claim.value();
        body["spec"]["storageClassName"] = json!(class.meta.name);
        self.0.claims.update(body).await?;
        Ok(Requeue::No)
    }

    /// The volume that is kept for the claim, or the smallest that suits it.
    fn find(
        &self,
        claim: &Object,
        spec: &Claim,
        class: &str,
        kept_only: bool,
    ) -> Result<Option<Arc<Object>>, Failure> {
        let mut best: Option<(Option<coracle_proto::quantity::Quantity>, Arc<Object>)> = None;
        for object in self.0.volumes.all() {
            let volume: Volume = read(&object)?;
            if object.meta.deletion_timestamp.is_some() {
                continue;
            }
            match &volume.claim_ref {
                Some(kept) if is_for(kept, claim) => return Ok(Some(object)),
                Some(_) => continue,
                None if kept_only => continue,
                None => {}
            }
            if fit::suits(spec, class, &volume, &object.meta.labels) {
                let size = fit::size(&volume.capacity);
                if best.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                    best = Some((size, object));
                }
            }
        }
        Ok(best.map(|(_, object)| object))
    }

    /// Writes the volume first: after a crash in between, the volume is still reserved for this claim.
    pub(super) async fn bind(&self, claim: &Arc<Object>, volume: &Arc<Object>) -> Result<Requeue, Failure> {
        let spec: Volume = read(volume)?;
        if spec.claim_ref.as_ref().is_none_or(|r| r.uid != claim.meta.uid) {
            let mut body = volume.value();
            if spec.claim_ref.is_none() {
                body["metadata"]["annotations"][BY_CONTROLLER] = json!("yes");
            }
            body["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": claim.meta.namespace, "name": claim.meta.name, "uid": claim.meta.uid,
                "resourceVersion": claim.revision.to_string()});
            self.0.volumes.update(body).await?;
        }
        let mut body = claim.value();
        body["spec"]["volumeName"] = json!(volume.meta.name);
        body["metadata"]["annotations"][BOUND] = json!("yes");
        body["metadata"]["annotations"][BY_CONTROLLER] = json!("yes");
        self.0.claims.update(body).await?;
        Ok(Requeue::No)
    }

    /// A claim with a volume name: its phase becomes Bound once the volume refers to it.
    async fn bound(&self, claim: &Arc<Object>, spec: &Claim) -> Result<Requeue, Failure> {
        let value = claim.value();
        let once = value["metadata"]["annotations"][BOUND] == "yes";
        let Some(volume) = self.0.volumes.get(&Name::new("", &spec.volume_name)) else {
            if once {
                let mut status = value["status"].clone();
                status["phase"] = json!("Lost");
                self.0.claims.set_status(claim, status).await?;
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.0.claims.warn(claim, "ClaimLost", message);
            }
            return Ok(Requeue::No);
        };
        let row: Volume = read(&volume)?;
        match &row.claim_ref {
            Some(kept) if !is_for(kept, claim) => {
                if !once {
                    self.0.claims.warn(
                        claim,
                        "FailedBinding",
                        format!("volume \"{}\" already bound to a different claim.", spec.volume_name),
                    );
                }
                return Ok(Requeue::No);
            }
            Some(kept) if kept.uid == claim.meta.uid && once => {}
            _ => return self.bind(claim, &volume).await,
        }
        let status = json!({"phase": "Bound", "accessModes": row.access_modes, "capacity": row.capacity});
        let mut told = value["status"].clone();
        if !told.is_object() {
            told = json!({});
        }
        for key in ["phase", "accessModes", "capacity"] {
            told[key] = status[key].clone();
        }
        self.0.claims.set_status(claim, told).await?;
        Ok(Requeue::No)
    }

    /// Lets a claim go that no pod uses.
    async fn unprotect(&self, claim: &Arc<Object>) -> Result<Requeue, Failure> {
        if !claim.meta.finalizers.iter().any(|f| f == CLAIM_PROTECTION) {
            return Ok(Requeue::No);
        }
        let pods = self.0.pods.list(&claim.meta.namespace);
        let uses = |p: &Arc<Object>| !has_ended(p) && claims_of(p).contains(&claim.meta.name);
        if !pods.iter().any(uses) {
            let mut body = claim.value();
            remove_finalizer(&mut body, CLAIM_PROTECTION);
            self.0.claims.update(body).await?;
        }
        Ok(Requeue::No)
    }
}

fn is_for(kept: &ClaimRef, claim: &Object) -> bool {
    kept.namespace == claim.meta.namespace
        && kept.name == claim.meta.name
        && (kept.uid.is_empty() || kept.uid == claim.meta.uid)
}
