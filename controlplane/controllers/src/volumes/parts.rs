//! What the controllers of claims and volumes share: their identities, and the kinds they read and write.

use super::fit::{Claim, ClaimObject, Volume, VolumeObject};
use coracle_fields::storage_class;
use coracle_informer::identity::Identity;
use coracle_informer::resource::Resource;
use coracle_informer::runner::Failure;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;

/// The name of the controllers.
pub(super) const NAME: &str = "persistentvolume-controller";
/// The identity that they bind, provision and delete with.
pub(super) const BINDER: Identity = Identity::of("persistent-volume-binder").with_events(NAME);
const EXPANDER: Identity = Identity::of("expand-controller").with_events("volume_expand");

#[derive(Clone)]
pub(super) struct Parts {
    pub(super) claims: Resource,
    pub(super) volumes: Resource,
    /// Claims, for their finalizer.
    pub(super) protected_claims: Resource,
    /// Volumes, for their finalizer.
    pub(super) protected_volumes: Resource,
    /// Claims, for Events about their expansion.
    pub(super) expanded_claims: Resource,
    pub(super) classes: Resource,
    pub(super) pods: Resource,
    pub(super) nodes: Resource,
}

impl Parts {
    pub(super) fn new(setup: &mut Setup<'_>) -> Self {
        Self {
            claims: setup.resource(BINDER, "", "persistentvolumeclaims"),
            volumes: setup.resource(BINDER, "", "persistentvolumes"),
            protected_claims: setup.resource("pvc-protection-controller", "", "persistentvolumeclaims"),
            protected_volumes: setup.resource("pv-protection-controller", "", "persistentvolumes"),
            expanded_claims: setup.resource(EXPANDER, "", "persistentvolumeclaims"),
            classes: setup.resource(BINDER, "storage.k8s.io", "storageclasses"),
            pods: setup.resource(BINDER, "", "pods"),
            nodes: setup.resource(BINDER, "", "nodes"),
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
