//! Volumes: their phases, protected while bound, deleted with their claims where that is their policy.

use super::finalizers::{VOLUME_PROTECTION, add_finalizer, remove_finalizer};
use super::fit::Volume;
use super::parts::{NAME, Parts, read_volume};
use async_trait::async_trait;
use coracle_fields::core::v1::PersistentVolume;
use coracle_fields::{Made, Schema as _};
use coracle_informer::informer::Name;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use jiff::Timestamp;

/// Looks after volumes.
pub(super) struct Volumes(pub(super) Parts);

#[async_trait]
impl Controller for Volumes {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(volume) = self.0.volumes.get(name) else { return Ok(Requeue::No) };
        let value = volume.value();
        let protected = volume.meta.finalizers.iter().any(|f| f == VOLUME_PROTECTION);
        if volume.meta.deletion_timestamp.is_some() {
            if protected && PersistentVolume::of(&value).status().phase() != "Bound" {
                let mut body = value;
                remove_finalizer(&mut body, VOLUME_PROTECTION);
                self.0.volumes.update(body).await?;
                return Ok(Requeue::No);
            }
        } else if !protected {
            let mut body = value;
            add_finalizer(&mut body, VOLUME_PROTECTION);
            self.0.volumes.update(body).await?;
            return Ok(Requeue::No);
        }
        let spec = read_volume(&volume)?;
        let phase = match &spec.claim_ref {
            None => "Available",
            Some(kept) if kept.uid.is_empty() => "Available",
            Some(kept) => {
                let claim = self.0.claims.get(&Name::new(&kept.namespace, &kept.name));
                match claim.filter(|c| c.meta.uid == kept.uid) {
                    Some(_) => "Bound",
                    None => "Released",
                }
            }
        };
        let mut body = Made::<PersistentVolume>::new(value);
        body.edit().status().phase().set(phase);
        self.0.volumes.set_status(&volume, body.view().status().to_value()).await?;
        let own = body.view().metadata().annotations().key(PROVISIONED_BY) == PROVISIONER;
        let goes = spec.persistent_volume_reclaim_policy == "Delete" && own;
        if phase == "Released" && goes && volume.meta.deletion_timestamp.is_none() {
            if self.is_claimed(&spec).await? {
                return Ok(Requeue::Now);
            }
            self.0.volumes.delete(&volume).await?;
        }
        Ok(Requeue::No)
    }
}

impl Volumes {
    /// Whether its claim is there after all: data is about to go, and the store knows best.
    async fn is_claimed(&self, volume: &Volume) -> Result<bool, Failure> {
        let Some(kept) = &volume.claim_ref else { return Ok(false) };
        match self.0.claims.fresh(&Name::new(&kept.namespace, &kept.name)).await {
            Ok(claim) => Ok(claim.meta.uid == kept.uid),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
