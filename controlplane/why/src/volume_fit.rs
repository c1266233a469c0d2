//! Which volumes a claim can be bound to.

use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim};
use coracle_fields::{View, storage_class};
use coracle_proto::quantity::Quantity;

/// Why a volume cannot be bound to a claim. The selector does not count for a volume that the claim names.
pub fn mismatches(volume: View<'_, PersistentVolume>, claim: View<'_, PersistentVolumeClaim>) -> Vec<String> {
    let (has, wants) = (volume.spec(), claim.spec());
    let mut reasons = Vec::new();
    let (class, wanted) =
        (storage_class::of_volume(volume), storage_class::of_claim(claim).unwrap_or_default());
    if class != wanted {
        reasons.push(format!("has the class {class:?} instead of {wanted:?}"));
    }
    let (size, least) =
        (has.capacity().key("storage").text(), wants.resources().requests().key("storage").text());
    if let (Ok(size), Ok(least)) = (size.parse::<Quantity>(), least.parse::<Quantity>())
        && size < least
    {
        reasons.push(format!("has {size} instead of {least}"));
    }
    let missing: Vec<&str> =
        wants.access_modes().texts().filter(|mode| !has.access_modes().has(mode)).collect();
    if !missing.is_empty() {
        reasons.push(format!("has no access mode {}", missing.join(", ")));
    }
    let (mode, wanted) = (has.volume_mode().or("Filesystem"), wants.volume_mode().or("Filesystem"));
    if mode != wanted {
        reasons.push(format!("has the volume mode {mode} instead of {wanted}"));
    }
    let (attributes, wanted) =
        (has.volume_attributes_class_name().text(), wants.volume_attributes_class_name().text());
    if attributes != wanted {
        reasons.push(format!("has the attributes class {attributes:?} instead of {wanted:?}"));
    }
    reasons
}
