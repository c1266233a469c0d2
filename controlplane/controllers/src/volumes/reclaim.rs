//! Volumes: their phases, protected while bound, deleted with their claims where that is their policy.

use super::finalizers::{VOLUME_PROTECTION, add_finalizer, remove_finalizer};
use super::fit::Volume;
use super::parts::{NAME, Parts, read_volume};
use async_trait::async_trait;
use coracle_fields::core::v1::PersistentVolume;
use coracle_fields::{Made, Schema as _, View};
use coracle_informer::informer::Name;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use jiff::Timestamp;

/// Which driver a volume was moved to.
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// How names of provisioners begin that are part of Kubernetes.
const IN_TREE: &str = "kubernetes.io/";

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
                self.0.protected_volumes.update(body).await?;
                return Ok(Requeue::No);
            }
        } else if !protected {
            let mut body = value;
            add_finalizer(&mut body, VOLUME_PROTECTION);
            self.0.protected_volumes.update(body).await?;
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
        let fate = Fate::of(body.view());
        let problem = if phase == "Released" { fate.problem() } else { None };
        let phase = if problem.is_some() { "Failed" } else { phase };
        let is_new = body.view().status().phase() != phase;
        // The cache may not have the claim yet.
        if is_new && problem.is_some() && self.is_claimed(&spec).await? {
            return Ok(Requeue::Now);
        }
        body.edit().status().phase().set(phase);
        if is_new {
            body.edit().status().message().clear();
        }
        if let Some((reason, message)) = problem.filter(|_| is_new) {
            body.edit().status().message().set(&message);
            self.0.volumes.warn(&volume, reason, message);
        }
        self.0.volumes.set_status(&volume, body.view().status().to_value()).await?;
        if phase == "Released" && fate == Fate::Deleted && volume.meta.deletion_timestamp.is_none() {
            if self.is_claimed(&spec).await? {
                return Ok(Requeue::Now);
            }
            self.0.volumes.delete(&volume).await?;
        }
        Ok(Requeue::No)
    }
}

/// What becomes of a volume that is released.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It stays, or somebody else deletes it.
    Kept,
    /// It is deleted here.
    Deleted,
    /// It is to be deleted, and nobody does that.
    Undeletable {
        name: String,
        /// Whether Kubernetes has a plugin for its type, which cannot delete it.
        has_plugin: bool,
    },
    /// It is to be emptied for the next claim, and nobody does that.
    Unrecyclable,
}

impl Fate {
    fn of(volume: View<'_, PersistentVolume>) -> Self {
        match volume.spec().persistent_volume_reclaim_policy().text() {
            "Recycle" => Self::Unrecyclable,
            "Delete" => {
                let annotations = volume.metadata().annotations();
                let provisioner = annotations.key(PROVISIONED_BY);
                let is_external = !provisioner.text().is_empty() && !provisioner.text().starts_with(IN_TREE);
                let is_of_driver = volume.spec().csi().is_set() || annotations.key(MIGRATED_TO).is_set();
                match provisioner == PROVISIONER {
                    true => Self::Deleted,
                    false if is_external || is_of_driver => Self::Kept,
                    false => Self::Undeletable {
                        name: volume.metadata().name().text().to_owned(),
                        has_plugin: volume.spec().nfs().is_set() || volume.spec().host_path().is_set(),
                    },
                }
            }
            _ => Self::Kept,
        }
    }

    /// Reason and message, in the words of Kubernetes.
    fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Kept | Self::Deleted => None,
            Self::Undeletable { name, has_plugin } => {
                let plugin = if *has_plugin { "deletable volume plugin" } else { "volume plugin" };
                let message =
                    format!("error getting deleter volume plugin for volume {name:?}: no {plugin} matched");
                Some(("VolumeFailedDelete", message))
            }
            Self::Unrecyclable => {
                Some(("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()))
            }
        }
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
