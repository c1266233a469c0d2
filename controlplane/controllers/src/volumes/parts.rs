//! What the controllers of claims and volumes share: their identity, and the kinds they read and write.

use super::fit::{Claim, ClaimObject, Volume, VolumeObject};
use coracle_fields::storage_class;
use coracle_informer::resource::Resource;
use coracle_informer::runner::Failure;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;

/// The name of the controllers, which they also write as.
pub(super) const NAME: &str = "persistentvolume-controller";

#[derive(Clone)]
pub(super) struct Parts {
    pub(super) claims: Resource,
    pub(super) volumes: Resource,
    pub(super) classes: Resource,
    pub(super) pods: Resource,
    pub(super) nodes: Resource,
}

impl Parts {
    pub(super) fn new(setup: &mut Setup<'_>) -> Self {
        Self {
            claims: setup.resource(NAME, "", "persistentvolumeclaims"),
            volumes: setup.resource(NAME, "", "persistentvolumes"),
            classes: setup.resource(NAME, "storage.k8s.io", "storageclasses"),
            pods: setup.resource(NAME, "", "pods"),
            nodes: setup.resource(NAME, "", "nodes"),
        }
    }
}

pub(super) fn read_claim(object: &Object) -> Result<Claim, Failure> {
    let mut claim = object.typed::<ClaimObject>()?.spec;
    claim.storage_class_name = storage_class::of_claim(object.doc().view()).map(str::to_owned);
    Ok(claim)
}

pub(super) fn read_volume(object: &Object) -> Result<Volume, Failure> {
    let mut volume = object.typed::<VolumeObject>()?.spec;
    volume.storage_class_name = storage_class::of_volume(object.doc().view()).to_owned();
    Ok(volume)
}
