//! Attachments and volumes, read.

use coracle_fields::core::v1;
use coracle_fields::storage::v1::{CSIDriver, VolumeAttachment};
use coracle_informer::informer::Name;
use coracle_kinds::object::Object;
use std::sync::Arc;

/// A VolumeAttachment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) node: String,
    /// Name of the PersistentVolume.
    pub(super) volume: String,
    pub(super) is_attached: bool,
    /// Why the driver has not attached it.
    pub(super) error: String,
    pub(super) is_deleting: bool,
}

impl Attachment {
    pub(super) fn read(object: &Arc<Object>) -> Self {
        let doc = object.doc();
        let view = doc.view::<VolumeAttachment>();
        Self {
            name: object.meta.name.clone(),
            node: view.spec().node_name().text().to_owned(),
            volume: view.spec().source().persistent_volume_name().text().to_owned(),
            is_attached: view.status().attached().get() == Some(true),
            error: view.status().attach_error().message().text().to_owned(),
            is_deleting: object.meta.deletion_timestamp.is_some(),
        }
    }

    pub(super) fn keys(&self) -> Vec<String> {
        vec![on_node(&self.node), of_volume(&self.volume)]
    }
}

/// Key of the attachments of a node.
pub(super) fn on_node(node: &str) -> String {
    format!("node/{node}")
}

/// Key of the attachments of a volume.
pub(super) fn of_volume(volume: &str) -> String {
    format!("volume/{volume}")
}

/// A volume of a driver.
pub(super) struct Bound {
    pub(super) driver: String,
    pub(super) handle: String,
    /// Only one node at a time.
    pub(super) is_exclusive: bool,
}

/// A volume that is bound to the claim with this uid, if a driver has it.
pub(super) fn read_volume(volume: &Object, claim: &str) -> Option<Bound> {
    let doc = volume.doc();
    let spec = doc.view::<v1::PersistentVolume>().spec();
    let driver = spec.csi().driver().get()?.to_owned();
    let modes: Vec<&str> = spec.access_modes().texts().collect();
    let is_shared =
        modes.is_empty() || modes.iter().any(|mode| matches!(*mode, "ReadWriteMany" | "ReadOnlyMany"));
    let handle = spec.csi().volume_handle().text().to_owned();
    (spec.claim_ref().uid() == claim).then_some(Bound { driver, handle, is_exclusive: !is_shared })
}

/// The claim that a volume is bound to.
pub(super) fn claim_of_volume(volume: &Object) -> Option<Name> {
    let doc = volume.doc();
    let claim = doc.view::<v1::PersistentVolume>().spec().claim_ref();
    Some(Name::new(claim.namespace().text(), claim.name().get()?))
}

/// Whether volumes of a driver are attached before they are mounted.
pub(super) fn attach_required(driver: &Object) -> bool {
    driver.doc().view::<CSIDriver>().spec().attach_required().get() != Some(false)
}
