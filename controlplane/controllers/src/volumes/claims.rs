//! Claims: bound to volumes, and protected while pods use them.

use super::expand;
use super::finalizers::{add_finalizer, remove_finalizer};
use super::fit::{self, Claim, ClaimRef};
use super::parts::{Parts, read_claim, read_volume};
use super::provision::{DEFAULT_CLASS, Provisioned, SELECTED_NODE, provision};
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{Schema as _, View, make};
use coracle_informer::informer::Name;
use coracle_informer::pod::has_ended;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_kinds::object::Object;
use coracle_proto::local_path::PROVISIONER;
use jiff::Timestamp;
use serde_json::json;
use std::cmp::Reverse;
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
            self.0.protected_claims.update(body).await?;
            return Ok(Requeue::No);
        }
        let spec = read_claim(&claim)?;
        if !spec.volume_name.is_empty() {
            return self.bound(&claim, &spec).await;
        }
        let class = spec.storage_class_name.clone().unwrap_or_default();
        let doc = claim.doc();
        let annotations = doc.view::<v1::PersistentVolumeClaim>().metadata().annotations();
        let selected = annotations.key(SELECTED_NODE).get();
        let row = self.0.classes.get(&Name::new("", &class)).map(|c| c.value());
        let waits = row
            .as_ref()
            .is_some_and(|class| StorageClass::of(class).volume_binding_mode() == "WaitForFirstConsumer");
        if let Some(volume) = self.find(&claim, &spec, &class, waits)? {
            return self.bind(&claim, &volume).await;
        }
        if spec.storage_class_name.is_none() && self.set_default_class(&claim).await? {
            return Ok(Requeue::No);
        }
        let Some(row) = row else {
            if class.is_empty() {
                let message = "no persistent volumes available for this claim and no storage class is set";
                self.0.claims.normal(&claim, "FailedBinding", message);
            } else {
                let message = format!("storageclass.storage.k8s.io \"{class}\" not found");
                self.0.claims.warn(&claim, "ProvisioningFailed", message);
            }
            return Ok(Requeue::No);
        };
        if waits && selected.is_none() {
            let message = "waiting for first consumer to be created before binding";
            self.0.claims.normal(&claim, "WaitForFirstConsumer", message);
            return Ok(Requeue::No);
        }
        let provisioner = StorageClass::of(&row).provisioner().text();
        if provisioner != PROVISIONER {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator."
            );
            self.0.claims.normal(&claim, "ExternalProvisioning", message);
            let key = "volume.kubernetes.io/storage-provisioner";
            if annotations.key(key) != provisioner {
                let mut body = claim.copy::<v1::PersistentVolumeClaim>();
                body.edit().metadata().annotations().insert(key, provisioner);
                self.0.claims.update(body).await?;
            }
            return Ok(Requeue::No);
        }
        match provision(&self.0, &claim, &spec, &row, selected).await? {
            Provisioned::Volume(volume) => self.bind(&claim, &volume).await,
            Provisioned::NotCached => Ok(Requeue::Now),
            Provisioned::Failed => Ok(Requeue::No),
        }
    }
}

impl Claims {
    /// Gives the default class to a claim that names none; tells whether there is one.
    async fn set_default_class(&self, claim: &Arc<Object>) -> Result<bool, Failure> {
        let Some(class) = newest_default(&self.0.classes.all()) else { return Ok(false) };
        let mut body = claim.copy::<v1::PersistentVolumeClaim>();
        body.edit().spec().storage_class_name().set(class);
        self.0.claims.update(body).await?;
        Ok(true)
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
            let volume = read_volume(&object)?;
            if object.meta.deletion_timestamp.is_some() {
                continue;
            }
            match &volume.claim_ref {
                Some(kept) if is_for(kept, claim) => {
                    if fit::could_hold(spec, &volume).is_ok() {
                        return Ok(Some(object));
                    }
                    continue;
                }
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
    async fn bind(&self, claim: &Arc<Object>, volume: &Arc<Object>) -> Result<Requeue, Failure> {
        let spec = read_volume(volume)?;
        if spec.claim_ref.as_ref().is_none_or(|r| r.uid != claim.meta.uid) {
            let mut body = volume.copy::<v1::PersistentVolume>();
            if spec.claim_ref.is_none() {
                body.edit().metadata().annotations().insert(BY_CONTROLLER, "yes");
            }
            body.edit().spec().claim_ref().set(make!(part v1::ObjectReference {
                kind: "PersistentVolumeClaim",
                api_version: "v1",
                namespace: &claim.meta.namespace,
                name: &claim.meta.name,
                uid: &claim.meta.uid,
                resource_version: claim.revision.to_string(),
            }));
            self.0.volumes.update(body).await?;
        }
        let mut body = claim.copy::<v1::PersistentVolumeClaim>();
        if !body.view().spec().volume_name().is_set() {
            body.edit().metadata().annotations().insert(BY_CONTROLLER, "yes");
        }
        body.edit().spec().volume_name().set(&volume.meta.name);
        body.edit().metadata().annotations().insert(BOUND, "yes");
        self.0.claims.update(body).await?;
        Ok(Requeue::No)
    }

    /// A claim with a volume name: its phase becomes Bound once the volume refers to it.
    async fn bound(&self, claim: &Arc<Object>, spec: &Claim) -> Result<Requeue, Failure> {
        let mut body = claim.copy::<v1::PersistentVolumeClaim>();
        let once = body.view().metadata().annotations().key(BOUND) == "yes";
        let Some(volume) = self.0.volumes.get(&Name::new("", &spec.volume_name)) else {
            if once {
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.lose(claim, "ClaimLost", message).await?;
            }
            return Ok(Requeue::No);
        };
        let row = read_volume(&volume)?;
        match &row.claim_ref {
            Some(kept) if !is_for(kept, claim) => {
                if once {
                    let message = "Two claims are bound to the same volume, this one is bound incorrectly";
                    self.lose(claim, "ClaimMisbound", message).await?;
                } else {
                    self.0.claims.warn(
                        claim,
                        "FailedBinding",
                        format!("volume \"{}\" already bound to a different claim.", spec.volume_name),
                    );
                }
                return Ok(Requeue::No);
            }
            Some(kept) if kept.uid == claim.meta.uid && once => {}
            None if !once => {
                if let Err(mismatch) = fit::satisfies(spec, &row, &volume) {
                    let message =
                        format!("Cannot bind to requested volume {:?}: {mismatch}", volume.meta.name);
                    self.0.claims.warn(claim, "VolumeMismatch", message);
                    return Ok(Requeue::No);
                }
                return self.bind(claim, &volume).await;
            }
            _ => return self.bind(claim, &volume).await,
        }
        let was_bound = body.view().status().phase() == "Bound";
        body.edit().status().phase().set("Bound");
        body.edit().status().access_modes().set(row.access_modes);
        // Of a claim that was bound before, the node reports the size: a volume may be larger than its file system.
        if !was_bound {
            body.edit().status().capacity().put(json!(row.capacity));
        }
        self.0.claims.set_status(claim, body.view().status().to_value()).await?;
        if was_bound && expand::waits_for_resizer(body.view(), volume.doc().view()) {
            self.0.expanded_claims.normal(claim, "ExternalExpanding", expand::MESSAGE);
        }
        Ok(Requeue::No)
    }

    /// A claim whose data is lost; it stays so.
    async fn lose(&self, claim: &Arc<Object>, reason: &'static str, message: &str) -> Result<(), Failure> {
        let mut body = claim.copy::<v1::PersistentVolumeClaim>();
        if body.view().status().phase() == "Lost" {
            return Ok(());
        }
        body.edit().status().phase().set("Lost");
        self.0.claims.set_status(claim, body.view().status().to_value()).await?;
        self.0.claims.warn(claim, reason, message);
        Ok(())
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
            self.0.protected_claims.update(body).await?;
        }
        Ok(Requeue::No)
    }
}

/// The claims a pod uses.
pub(super) fn claims_of(pod: &Object) -> Vec<String> {
    let claim = |volume: View<'_, v1::Volume>| {
        let named = volume.persistent_volume_claim().claim_name().get().map(str::to_owned);
        let own = || {
            let own = volume.ephemeral().is_set();
            own.then(|| format!("{}-{}", pod.meta.name, volume.name().text()))
        };
        named.or_else(own)
    };
    let doc = pod.doc();
    doc.view::<v1::Pod>().spec().volumes().items().filter_map(claim).collect()
}

/// The class of claims that name none: of those marked as default the newest, of equally old ones the first by name.
pub(super) fn newest_default(classes: &[Arc<Object>]) -> Option<String> {
    let created = |class: &Arc<Object>| {
        let doc = class.doc();
        let meta = doc.view::<StorageClass>().metadata();
        let marked = DEFAULT_CLASS.iter().any(|key| meta.annotations().key(key) == "true");
        marked.then(|| meta.creation_timestamp().text().to_owned())
    };
    let defaults = classes.iter().filter_map(|class| Some((Reverse(created(class)?), &class.meta.name)));
    defaults.min().map(|(_, name)| name.clone())
}

fn is_for(kept: &ClaimRef, claim: &Object) -> bool {
    kept.namespace == claim.meta.namespace
        && kept.name == claim.meta.name
        && (kept.uid.is_empty() || kept.uid == claim.meta.uid)
}
